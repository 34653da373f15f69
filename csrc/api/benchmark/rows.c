/* Writes the rows of a result file. Its nine classic columns come first. */
#include <math.h>
#include <string.h>

#include "api/benchmark/benchmark.h"
#include "base/names.h"

enum { FLOOR_FACTOR = 3 }; /* within so many empty launches it is the launch that is measured */

static const char classic_columns[] = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written";
static const char more_columns[] =
    "case,backend,device,variant,status,reason,timer,cache,buffer_sets,launches_per_sample,samples,converged,seed,"
    "time_ms_lo,time_ms_hi,time_ms_min,noise,timer_floor_us,flops,footprint_bytes,verified,max_error,tolerance,flags,"
    "bwprof_version";
static const char *const classic_params[] = {"M", "N", "K", NULL};

/* The n-th parameter's name of all operations' that is not classic, each once; NULL behind the last one. */
static const char *param_at(int wanted) {
    for (int o = 0; o < bw_op_count(); o++) {
        for (int p = 0; p < bw_op_at(o)->param_count; p++) {
            const char *name = bw_op_at(o)->params[p].name;
            bool known = bw_name_find(name, bw_name_of_text, classic_params, NULL, 0) >= 0;
            for (int earlier = 0; earlier < o && !known; earlier++) {
                known = bw_op_param_index(bw_op_at(earlier), name) >= 0;
            }
            if (!known && wanted-- == 0) return name;
        }
    }
    return NULL;
}

void bw_rows_header(bw_text *to, bool classic) {
    bw_text_add(to, "%s", classic_columns);
    for (int i = 0; !classic && param_at(i); i++) bw_text_add(to, ",%s", param_at(i));
    bw_text_add(to, classic ? "\n" : ",%s\n", more_columns);
}

static void add_whole(bw_text *to, bool known, int64_t value) {
    bw_text_add(to, ",");
    if (known) bw_text_add(to, "%lld", (long long)value);
}

static void add_param(bw_text *to, const bw_outcome *row, const char *name) {
    int index = bw_op_param_index(row->planned_case->op, name);
    bool known = row->has_dims && index >= 0;
    add_whole(to, known, known ? row->dims.value[index] : 0);
}

static void add_number(bw_text *to, double value) {
    bw_text_add(to, ",");
    bw_text_number(to, value, -1, "");
}

static void add_cell(bw_text *to, const char *text) {
    bw_text_add(to, ",");
    bw_text_cell(to, text);
}

static void add_truth(bw_text *to, bool known, bool value) {
    bw_text_add(to, ",%s", !known ? "" : value ? "True" : "False");
}

static void add_flags(bw_text *to, const bw_outcome *row) {
    const bw_measurement *m = &row->measurement;
    const struct {
        bool is;
        const char *word;
    } flags[] = {{row->time_ms * 1e6 < FLOOR_FACTOR * m->timer_floor_ns, "near_timer_floor"},
                 {row->planned_case->cache == BW_CACHE_COLD && !m->rotation.cold, "not_cold"},
                 {!m->converged, "not_converged"},
                 {m->statistics.two_states, "two_states"},
                 {m->statistics.drift != 0.0, "drifting"}};
    const char *before = "";
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!flags[i].is) continue;
        bw_text_add(to, "%s%s", before, flags[i].word);
        before = ";";
    }
}

/* What the row is of; in classic columns the case, with its variant where the case has several. */
static void add_operation(bw_text *to, const bw_outcome *row, bool classic) {
    const bw_suite_case *entry = row->planned_case->entry;
    const char *const *variants = entry->variants;
    bool several = variants && (variants[1] || strcmp(variants[0], "all") == 0);
    bw_text_cell(to, classic ? entry->name : row->planned_case->op->name);
    if (classic && several) bw_text_add(to, " %s", row->variant);
}

void bw_rows_add(bw_text *to, const bw_session *session, const bw_outcome *row, bool classic) {
    const bw_measurement *m = &row->measurement;
    const bool has_time = !isnan(row->time_ms);
    add_operation(to, row, classic);
    bw_text_add(to, ",");
    for (const char *at = row->planned_case->precision->name; *at; at++)
        bw_text_add(to, "%c", classic ? bw_text_capital(*at) : *at);
    for (int i = 0; classic_params[i]; i++) add_param(to, row, classic_params[i]);
    add_number(to, row->time_ms);
    add_number(to, row->gb_s);
    add_whole(to, row->has_cost, row->cost.bytes_read);
    add_whole(to, row->has_cost, row->cost.bytes_written);
    if (classic) {
        bw_text_add(to, "\n");
        return;
    }
    for (int i = 0; param_at(i); i++) add_param(to, row, param_at(i));
    add_cell(to, row->planned_case->entry->name);
    add_cell(to, session->backend->name);
    add_cell(to, session->backend->devices->facts(session->device)->name);
    add_cell(to, row->variant);
    add_cell(to, row->status);
    add_cell(to, row->reason);
    add_cell(to, has_time ? bw_timer_name(session, 0) : "");
    add_cell(to, row->planned_case->cache == BW_CACHE_HOT ? "hot" : "cold");
    add_whole(to, has_time, m->rotation.sets);
    add_whole(to, has_time, m->launches_per_sample);
    add_whole(to, has_time, m->statistics.count);
    add_truth(to, has_time, m->converged);
    bw_text_add(to, ",0");
    add_number(to, has_time ? m->statistics.low / 1e6 : NAN);
    add_number(to, has_time ? m->statistics.high / 1e6 : NAN);
    add_number(to, has_time ? m->statistics.minimum / 1e6 : NAN);
    add_number(to, has_time ? m->statistics.noise : NAN);
    add_number(to, has_time ? m->timer_floor_ns / 1e3 : NAN);
    add_whole(to, row->has_cost, row->cost.flops);
    add_whole(to, row->has_cost, row->cost.footprint_bytes);
    add_truth(to, has_time, m->verdict.verified);
    add_number(to, has_time ? m->verdict.max_error : NAN);
    add_number(to, has_time ? m->verdict.tolerance : NAN);
    bw_text_add(to, ",");
    if (has_time) add_flags(to, row);
    bw_text_add(to, ",%s\n", bwprof_version());
}
