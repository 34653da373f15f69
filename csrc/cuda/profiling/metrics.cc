// Metrics of one cold launch that take several passes: how busy the pipes are, why warps wait, how memory is accessed.
// CUPTI asks for the launch many times, each time after a flush. Setting up and taking down cost a third of a second.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cuda/profiling/range_profiler.h"
#include "cuda/runtime/calls.h"

const char *const bw_cuda_metric_groups[] = {"tensor",  "fma",  "occupancy", "stalls", "bank_conflicts",
                                             "sectors", "dram", "sm",        "caches", NULL};

#ifndef BW_HAS_RANGE_PROFILER

bw_status bw_cuda_metrics(bw_device *, const bw_plan_spec *, unsigned, bw_metrics *out) {
    *out = bw_metrics{};
    snprintf(out->status, sizeof out->status, "%s", BW_NO_RANGE_PROFILER);
    return BW_OK;
}

#else

namespace {

using bw_profiler::counter;
using bw_profiler::profiler;

constexpr int PASSES_MOST = 128;

// In the order of bw_cuda_metric_groups.
enum group {
    GROUP_TENSOR,
    GROUP_FMA,
    GROUP_OCCUPANCY,
    GROUP_STALLS,
    GROUP_BANK_CONFLICTS,
    GROUP_SECTORS,
    GROUP_DRAM,
    GROUP_SM,
    GROUP_CACHES
};

constexpr counter SM_CYCLES = {{"sm__cycles_active.max", nullptr}};  // of the one that was at work longest
constexpr counter SM_CYCLES_MEAN = {{"sm__cycles_active.avg", nullptr}};
constexpr counter SM_CYCLES_ALL = {{"sm__cycles_elapsed.max", nullptr}};  // of the range
constexpr counter SM_HZ = {{"sm__cycles_elapsed.avg.per_second", nullptr}};
constexpr counter DRAM_WIDTH = {{"dram__bytes.sum.peak_sustained", nullptr}};
constexpr counter DRAM_HZ = {{"dram__cycles_elapsed.avg.per_second", nullptr}};
constexpr counter L2_SECTORS = {{"lts__t_sectors.avg.pct_of_peak_sustained_elapsed", nullptr}};
constexpr counter LOCAL_LOADS = {{"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", nullptr}};
constexpr counter LOCAL_STORES = {{"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", nullptr}};
constexpr counter LOADS = {{"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", nullptr}};
constexpr counter LOAD_LINES = {{"l1tex__t_set_accesses_pipe_lsu_mem_global_op_ld.sum", nullptr}};

// Counted apart: these compare clocks and bytes, which one pass must have seen. A range is up to 45 us longer than its
// launch, and by how much differs between passes (H200: 65 to 97 % of DRAM's peak for what alone is 83 %).
constexpr unsigned OF_ONE_PASS = 1u << GROUP_DRAM | 1u << GROUP_CACHES;

// Of what DRAM could move while multiprocessors were at work: the range also holds time before and after the launch.
double dram_pct(const double *value) {
    const double bytes = value[0] + value[1], cycles = value[2], hz = value[3], dram_width = value[4],
                 dram_hz = value[5];
    return 100 * bytes / (cycles / hz * dram_width * dram_hz);
}

double l2_pct(const double *value) {
    const double pct_of_range = value[0], range_cycles = value[1], cycles = value[2];
    return pct_of_range * range_cycles / cycles;
}

double local_bytes(const double *value) {
    return 32 * (value[0] + value[1]);
}

double lines_per_load(const double *value) {
    const double lines = value[0], loads = value[1];
    return loads > 0 ? lines / loads : 0;
}

double sm_cycles_ratio(const double *value) {
    return value[0] / value[1];
}

constexpr int COUNTERS_MOST = 6;
struct metric_row {
    group family;
    const char *name;
    counter counters[COUNTERS_MOST];
    double (*derive)(const double *value) = nullptr;  // from the counters' values; nullptr: it is the first one's
    bool newer = false;  // the hardware that it is about is not in every chip: no word about it where it is unknown
};

constexpr metric_row counted(group family, const char *name, const char *first, const char *other = nullptr) {
    return {family, name, {{{first, other}}}};
}
#define STALL(reason) \
    counted(GROUP_STALLS, "stall_" #reason, "smsp__average_warps_issue_stalled_" #reason "_per_issue_active.ratio")

const metric_row table[] = {
    counted(GROUP_TENSOR, "tensor_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"),
    counted(GROUP_FMA, "fma_pct", "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"),
    counted(GROUP_OCCUPANCY, "occupancy_pct", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    STALL(long_scoreboard),
    STALL(short_scoreboard),
    STALL(barrier),
    STALL(membar),
    STALL(wait),
    {GROUP_STALLS,
     "stall_gmma",
     {{{"smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", nullptr}}},
     nullptr,
     true},
    STALL(math_pipe_throttle),
    STALL(lg_throttle),
    STALL(mio_throttle),
    STALL(tex_throttle),
    STALL(not_selected),
    STALL(no_instruction),
    STALL(branch_resolving),
    STALL(dispatch_stall),
    STALL(drain),
    STALL(imc_miss),
    STALL(sleeping),
    STALL(misc),
    counted(GROUP_BANK_CONFLICTS, "bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    counted(GROUP_BANK_CONFLICTS, "shared_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
    counted(GROUP_SECTORS, "sectors_per_load", "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"),
    counted(GROUP_SECTORS, "sectors_per_store", "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"),
    {GROUP_DRAM,
     "dram_pct",
     {bw_profiler::DRAM_READ, bw_profiler::DRAM_WRITTEN, SM_CYCLES, SM_HZ, DRAM_WIDTH, DRAM_HZ},
     dram_pct},
    counted(GROUP_SM, "sm_pct", "sm__throughput.avg.pct_of_peak_sustained_active",
            "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    counted(GROUP_SM, "issue_pct", "sm__inst_issued.avg.pct_of_peak_sustained_active",
            "smsp__issue_active.avg.pct_of_peak_sustained_active"),
    counted(GROUP_SM, "active_threads", "smsp__average_thread_inst_executed_per_inst_executed.ratio",
            "smsp__thread_inst_executed_per_inst_executed.ratio"),
    {GROUP_SM, "sm_cycles_ratio", {SM_CYCLES, SM_CYCLES_MEAN}, sm_cycles_ratio},
    counted(GROUP_BANK_CONFLICTS, "shared_pct",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed"),
    {GROUP_SECTORS, "lines_per_load", {LOAD_LINES, LOADS}, lines_per_load},
    {GROUP_SECTORS, "local_bytes", {LOCAL_LOADS, LOCAL_STORES}, local_bytes},
    counted(GROUP_CACHES, "l1_pct", "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active",
            "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"),
    {GROUP_CACHES, "l2_pct", {L2_SECTORS, SM_CYCLES_ALL, SM_CYCLES}, l2_pct},
};

constexpr int TABLE_ROWS = sizeof table / sizeof table[0];
static_assert(TABLE_ROWS <= BW_METRICS_MAX, "there is room for every metric");

void list(unsigned groups, bw_metrics *out) {
    *out = bw_metrics{};
    for (const auto &row : table) {
        if (groups >> row.family & 1) out->metric[out->count++] = bw_metric{row.name, NAN};
    }
}

// Where the values of each row's counters are, of rows whose counters the chip knows.
struct metric_choice {
    bool known[TABLE_ROWS];
    int at[TABLE_ROWS][COUNTERS_MOST];
};

// The metrics of these groups that the chip knows go into the set; the names of the others into the status.
bw_status choose(profiler *self, unsigned groups, metric_choice *out, bw_metrics *metrics) {
    for (int i = 0; i < TABLE_ROWS; i++) {
        out->known[i] = groups >> table[i].family & 1;
        if (!out->known[i]) continue;
        for (int j = 0; j < COUNTERS_MOST && table[i].counters[j].names[0] && out->known[i]; j++) {
            BW_TRY(bw_profiler::set_add(self, table[i].counters[j], &out->at[i][j]));
            out->known[i] = out->at[i][j] >= 0;
        }
        if (!out->known[i] && !table[i].newer) {
            const size_t used = strlen(metrics->status);
            snprintf(metrics->status + used, sizeof metrics->status - used, "%s%s",
                     used ? ", " : "CUPTI does not know for this GPU: ", table[i].name);
        }
    }
    return BW_OK;
}

void spread(const metric_choice *choice, const double *values, unsigned groups, bw_metrics *out) {
    int listed = 0;
    for (int i = 0; i < TABLE_ROWS; i++) {
        if (!(groups >> table[i].family & 1)) continue;
        double own[COUNTERS_MOST] = {};
        double *value = &out->metric[listed++].value;
        if (!choice->known[i]) continue;
        for (int j = 0; j < COUNTERS_MOST && table[i].counters[j].names[0]; j++) own[j] = values[choice->at[i][j]];
        *value = table[i].derive ? table[i].derive(own) : own[0];
    }
}

// The metrics of the groups `now`, of those that are listed.
bw_status count_metrics(bw_device *device, profiler *self, const bw_plan_spec *spec, unsigned groups, unsigned now,
                        bw_metrics *out) {
    double values[BW_METRICS_MAX] = {};
    metric_choice choice;
    const bw_cuda_work launcher = bw_cuda_work_of(device, spec);
    bw_profiler::work work = {device, &launcher, 0, 1, {}, {}};
    bw_status status = BW_OK;
    int passes = 0;
    BW_TRY(choose(self, now, &choice, out));
    if (!self->set.count) return BW_OK;
    BW_GOTO(bw_profiler::set_open(self));
    BW_GOTO(bw_profiler::flush_open(device, &work.flush_ahead));
    BW_GOTO(bw_cuda_work_run(&launcher, 1));  // code is loaded before anything is counted
    BW_GOTO(bw_profiler::count(self, &work, PASSES_MOST, values, &passes));
    out->passes += passes;
    spread(&choice, values, groups, out);
cleanup:
    bw_status_free(status ? bw_profiler::wait(&work) : BW_OK);
    bw_cuda_flush_close(device, &work.flush_ahead);
    return status;
}

}  // namespace

bw_status bw_cuda_metrics(bw_device *device, const bw_plan_spec *spec, unsigned groups, bw_metrics *out) {
    char why[sizeof out->status];
    list(groups, out);
    // Where these metrics have failed, the bytes may still be counted.
    bw_status status = bw_profiler::run(device, false, why, sizeof why, [&](profiler *self) -> bw_status {
        for (const unsigned now : {groups & OF_ONE_PASS, groups & ~OF_ONE_PASS}) {
            if (!now) continue;
            bw_profiler::close(device, self);
            BW_TRY(bw_profiler::open(device, self));
            BW_TRY(count_metrics(device, self, spec, groups, now, out));
            bw_profiler::close(device, self);
        }
        return BW_OK;
    });
    if (why[0]) memcpy(out->status, why, sizeof why);
    return status;
}

#endif
