/* Writes the rows of a result file. Its nine classic columns come first. */
#include <math.h>
#include <string.h>

#include "api/benchmark/benchmark.h"

enum { FLOOR_FACTOR = 3 }; /* within so many empty launches it is the launch that is measured */

static const char classic_columns[] = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written";
static const char more_columns[] =
    "case,backend,device,variant,status,reason,timer,cache,buffer_sets,launches_per_sample,samples,converged,seed,"
    "time_ms_lo,time_ms_hi,time_ms_min,noise,timer_floor_us,flops,footprint_bytes,verified,max_error,tolerance,flags,"
    "bwprof_version";
static const char *const classic_params[] = {"M", "N", "K"};

static bool is_classic(const char *name) {
    for (int i = 0; i < 3; i++) {
        if (strcmp(classic_params[i], name) == 0) return true;
    }
    return false;
}

/* The n-th parameter's name of all operations' that is not classic, each once; NULL behind the last one. */
static const char *param_at(int wanted) {
    for (int o = 0; o < bw_op_count(); o++) {
        for (int p = 0; p < bw_op_at(o)->param_count; p++) {
            const char *name = bw_op_at(o)->params[p].name;
            bool known = is_classic(name);
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

static void add_param(bw_text *to, const bw_outcome *row, const char *name) {
    int index = bw_op_param_index(row->planned_case->op, name);
    bw_text_add(to, ",");
    if (row->has_dims && index >= 0) bw_text_add(to, "%lld", (long long)row->dims.value[index]);
}

static void add_number(bw_text *to, double value) {
    bw_text_add(to, ",");
    bw_text_number(to, value, -1, "");
}

static void add_cell(bw_text *to, const char *text) {
    bw_text_add(to, ",");
    bw_text_cell(to, text);
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
    const char *before = ",";
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (flags[i].is) bw_text_add(to, "%s%s", before, flags[i].word);
        if (flags[i].is) before = ";";
    }
    if (*before == ',') bw_text_add(to, ",");
}

static const char *truth(bool value) {
    return value ? "True" : "False";
}

static void add_measured(bw_text *to, const bw_session *session, const bw_outcome *row) {
    const bw_measurement *m = &row->measurement;
    bw_text_add(to, ",%s,%s,%lld,%lld,%lld,%s,0", bw_timer_name(session, 0),
                row->planned_case->cache == BW_CACHE_HOT ? "hot" : "cold", (long long)m->rotation.sets,
                (long long)m->launches_per_sample, (long long)m->statistics.count, truth(m->converged));
    add_number(to, m->statistics.low / 1e6);
    add_number(to, m->statistics.high / 1e6);
    add_number(to, m->statistics.minimum / 1e6);
    add_number(to, m->statistics.noise);
    add_number(to, m->timer_floor_ns / 1e3);
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
    const bw_device_facts *facts = session->backend->devices->facts(session->device);
    bool has_time = !isnan(row->time_ms);
    add_operation(to, row, classic);
    bw_text_add(to, ",");
    for (const char *at = row->planned_case->precision->name; *at; at++)
        bw_text_add(to, "%c", classic ? bw_text_capital(*at) : *at);
    for (int i = 0; i < 3; i++) add_param(to, row, classic_params[i]);
    add_number(to, row->time_ms);
    add_number(to, row->gb_s);
    if (row->has_cost)
        bw_text_add(to, ",%lld,%lld", (long long)row->cost.bytes_read, (long long)row->cost.bytes_written);
    if (!row->has_cost) bw_text_add(to, ",,");
    for (int i = 0; !classic && param_at(i); i++) add_param(to, row, param_at(i));
    if (classic) {
        bw_text_add(to, "\n");
        return;
    }
    add_cell(to, row->planned_case->entry->name);
    add_cell(to, session->backend->name);
    add_cell(to, facts->name);
    add_cell(to, row->variant);
    add_cell(to, row->status);
    add_cell(to, row->reason);
    if (has_time) add_measured(to, session, row);
    if (!has_time) bw_text_add(to, ",,%s,,,,,0,,,,,", row->planned_case->cache == BW_CACHE_HOT ? "hot" : "cold");
    if (row->has_cost) bw_text_add(to, ",%lld,%lld", (long long)row->cost.flops, (long long)row->cost.footprint_bytes);
    if (!row->has_cost) bw_text_add(to, ",,");
    bw_text_add(to, ",%s", has_time ? truth(row->measurement.verdict.verified) : "");
    add_number(to, has_time ? row->measurement.verdict.max_error : NAN);
    add_number(to, has_time ? row->measurement.verdict.tolerance : NAN);
    if (has_time) add_flags(to, row);
    bw_text_add(to, "%s,%s\n", has_time ? "" : ",", bwprof_version());
}
