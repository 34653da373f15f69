/* Writes the rows of a result file. Its nine classic columns come first. */
#include <math.h>
#include <string.h>

#include "api/benchmark/benchmark.h"
#include "base/names.h"

enum { FLOOR_FACTOR = 3 }; /* within so many empty launches it is the launch that is measured */

enum { WORDS_SIZE = 80 }; /* room for a precision's name, or for all flags */

static const char *const classic_params[] = {"M", "N", "K", NULL};

static void add_param(bw_row *to, const bw_outcome *row, const char *name) {
    int index = bw_op_param_index(row->planned_case->op, name);
    bool known = row->has_dims && index >= 0;
    bw_row_whole(to, name, known, known ? (uint64_t)row->dims.value[index] : 0);
}

/* Of all operations, each name once, but for the classic ones. */
static void add_params(bw_row *to, const bw_outcome *row) {
    for (int o = 0; o < bw_op_count(); o++) {
        for (int p = 0; p < bw_op_at(o)->param_count; p++) {
            const char *name = bw_op_at(o)->params[p].name;
            bool known = bw_name_find(name, bw_name_of_text, classic_params, NULL, 0) >= 0;
            for (int earlier = 0; earlier < o && !known; earlier++) {
                known = bw_op_param_index(bw_op_at(earlier), name) >= 0;
            }
            if (!known) add_param(to, row, name);
        }
    }
}

static void add_flags(bw_row *to, const bw_outcome *row) {
    const bw_measurement *m = &row->measurement;
    const struct {
        bool is;
        const char *word;
    } flags[] = {{row->time_ms * 1e6 < FLOOR_FACTOR * m->timer_floor_ns, "near_timer_floor"},
                 {row->planned_case->cache == BW_CACHE_COLD && !m->rotation.cold, "not_cold"},
                 {!m->converged, "not_converged"},
                 {m->statistics.two_states, "two_states"},
                 {m->statistics.drift != 0.0, "drifting"}};
    char words[WORDS_SIZE] = "";
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        size_t used = strlen(words);
        if (flags[i].is) snprintf(words + used, sizeof words - used, "%s%s", used ? ";" : "", flags[i].word);
    }
    bw_row_text(to, "flags", isnan(row->time_ms) ? "" : words);
}

static void add_operation(bw_row *to, const bw_outcome *row, bool classic) {
    const bw_suite_case *entry = row->planned_case->entry;
    char precision[WORDS_SIZE];
    bw_row_text(to, "operation", classic ? entry->name : row->planned_case->op->name);
    if (classic && entry->several_variants && to->form == BW_CSV) bw_text_add(to->to, " %s", row->variant);
    bw_outcome_precision(row, classic, precision, sizeof precision);
    bw_row_text(to, "precision", precision);
}

void bw_rows_add(bw_text *text, bw_form form, const bw_session *session, const bw_outcome *row, bool classic) {
    const bw_measurement *m = &row->measurement;
    const bool has_time = !isnan(row->time_ms);
    bw_row of = {.to = text, .form = form}, *to = &of;
    add_operation(to, row, classic);
    for (int i = 0; classic_params[i]; i++) add_param(to, row, classic_params[i]);
    bw_row_number(to, "time_ms", row->time_ms);
    bw_row_number(to, "bandwidth_gb_s", row->gb_s);
    bw_row_whole(to, "bytes_read", row->has_cost, (uint64_t)row->cost.bytes_read);
    bw_row_whole(to, "bytes_written", row->has_cost, (uint64_t)row->cost.bytes_written);
    if (!classic) {
        add_params(to, row);
        bw_row_text(to, "case", row->planned_case->entry->name);
        bw_row_text(to, "backend", session->backend->name);
        bw_row_text(to, "device", session->backend->devices->facts(session->device)->name);
        bw_row_text(to, "variant", row->variant);
        bw_row_text(to, "status", row->status);
        bw_row_text(to, "reason", row->reason);
        bw_row_text(to, "timer", has_time ? bw_timer_name(session, 0) : "");
        bw_row_text(to, "cache", row->planned_case->cache == BW_CACHE_HOT ? "hot" : "cold");
        bw_row_whole(to, "buffer_sets", has_time, (uint64_t)m->rotation.sets);
        bw_row_whole(to, "launches_per_sample", has_time, (uint64_t)m->launches_per_sample);
        bw_row_whole(to, "samples", has_time, (uint64_t)m->statistics.count);
        bw_row_truth(to, "converged", has_time, m->converged);
        bw_row_whole(to, "seed", true, 0);
        bw_row_number(to, "time_ms_lo", has_time ? m->statistics.low / 1e6 : NAN);
        bw_row_number(to, "time_ms_hi", has_time ? m->statistics.high / 1e6 : NAN);
        bw_row_number(to, "time_ms_min", has_time ? m->statistics.minimum / 1e6 : NAN);
        bw_row_number(to, "noise", has_time ? m->statistics.noise : NAN);
        bw_row_number(to, "timer_floor_us", has_time ? m->timer_floor_ns / 1e3 : NAN);
        bw_row_whole(to, "flops", row->has_cost, (uint64_t)row->cost.flops);
        bw_row_whole(to, "footprint_bytes", row->has_cost, (uint64_t)row->cost.footprint_bytes);
        bw_row_truth(to, "verified", has_time, m->verdict.verified);
        bw_row_number(to, "max_error", has_time ? m->verdict.max_error : NAN);
        bw_row_number(to, "tolerance", has_time ? m->verdict.tolerance : NAN);
        add_flags(to, row);
        bw_row_text(to, "bwprof_version", bwprof_version());
    }
    bw_text_add(text, "\n");
}
