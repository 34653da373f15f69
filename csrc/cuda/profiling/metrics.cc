// Metrics of one cold launch that take several passes: how busy the pipes are, why warps wait, how memory is accessed.
// CUPTI asks for the launch again and again, each time after a flush, and counts something else. The profiler is set up
// for them and taken down again, which takes a third of a second: it counts one set of metrics for each time.
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

// Counters that others are worked out of, by CUPTI's names: the first one that a chip knows is taken.
enum part {
    PART_READ,
    PART_WRITTEN,
    PART_SM_CYCLES,  // of the multiprocessor that was at work longest
    PART_SM_CYCLES_MEAN,
    PART_SM_CYCLES_ALL,  // of the range
    PART_SM_HZ,
    PART_DRAM_WIDTH,
    PART_DRAM_HZ,
    PART_L2,
    PART_LOCAL_LOADS,
    PART_LOCAL_STORES,
    PART_LOADS,
    PART_LOAD_LINES,
    PARTS
};
const char *const parts_of[PARTS][2] = {
    {"dram__bytes_read.sum", "dram__bytes_op_read.sum"},
    {"dram__bytes_write.sum", "dram__bytes_op_write.sum"},
    {"sm__cycles_active.max", nullptr},
    {"sm__cycles_active.avg", nullptr},
    {"sm__cycles_elapsed.max", nullptr},
    {"sm__cycles_elapsed.avg.per_second", nullptr},
    {"dram__bytes.sum.peak_sustained", nullptr},
    {"dram__cycles_elapsed.avg.per_second", nullptr},
    {"lts__t_sectors.avg.pct_of_peak_sustained_elapsed", nullptr},
    {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", nullptr},
    {"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", nullptr},
    {"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", nullptr},
    {"l1tex__t_set_accesses_pipe_lsu_mem_global_op_ld.sum", nullptr},
};

constexpr unsigned bit(part which) {
    return 1u << which;
}

// These compare clocks and bytes of one launch, which one pass must have seen: a range's time is up to 45 us longer
// than its launch, and by how much differs between passes (H200: 65 to 97 % of DRAM's peak for what alone is 83 %).
// They are counted apart from all others.
constexpr unsigned OF_ONE_PASS = 1u << GROUP_DRAM | 1u << GROUP_CACHES;

// A share of the range would count the time before and after the launch as well: of the time in which multiprocessors
// were at work, of what DRAM could have moved in it.
double dram_pct(const double *part) {
    const double seconds = part[PART_SM_CYCLES] / part[PART_SM_HZ];
    return 100 * (part[PART_READ] + part[PART_WRITTEN]) / (seconds * part[PART_DRAM_WIDTH] * part[PART_DRAM_HZ]);
}

double l2_pct(const double *part) {
    return part[PART_L2] * part[PART_SM_CYCLES_ALL] / part[PART_SM_CYCLES];
}

double local_bytes(const double *part) {
    return 32 * (part[PART_LOCAL_LOADS] + part[PART_LOCAL_STORES]);
}

double lines_per_load(const double *part) {
    return part[PART_LOADS] > 0 ? part[PART_LOAD_LINES] / part[PART_LOADS] : 0;
}

double sm_cycles_ratio(const double *part) {
    return part[PART_SM_CYCLES] / part[PART_SM_CYCLES_MEAN];
}

// Rows of the table below. What is derived has the name of the function that does it.
#define COUNTED(group, name, ...) \
    {                             \
        GROUP_##group, name, {    \
            __VA_ARGS__           \
        }                         \
    }
#define DERIVED(group, name, parts) \
    { GROUP_##group, #name, {nullptr, nullptr}, false, parts, name }
#define STALL(reason) \
    COUNTED(STALLS, "stall_" #reason, "smsp__average_warps_issue_stalled_" #reason "_per_issue_active.ratio")

// CUPTI's names, the most telling first; the first one that a chip knows is taken. Or what it is worked out of.
const struct {
    group family;
    const char *name;
    const char *candidates[2];
    bool newer = false;  // the hardware that it is about is not in every chip: no word about it where it is unknown
    unsigned parts = 0;  // a bit each
    double (*derive)(const double *part) = nullptr;
} table[] = {
    COUNTED(TENSOR, "tensor_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"),
    COUNTED(FMA, "fma_pct", "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"),
    COUNTED(OCCUPANCY, "occupancy_pct", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    STALL(long_scoreboard),
    STALL(short_scoreboard),
    STALL(barrier),
    STALL(membar),
    STALL(wait),
    {GROUP_STALLS, "stall_gmma", {"smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", nullptr}, true},
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
    COUNTED(BANK_CONFLICTS, "bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    COUNTED(BANK_CONFLICTS, "shared_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
    COUNTED(SECTORS, "sectors_per_load", "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"),
    COUNTED(SECTORS, "sectors_per_store", "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"),
    DERIVED(DRAM, dram_pct,
            bit(PART_READ) | bit(PART_WRITTEN) | bit(PART_SM_CYCLES) | bit(PART_SM_HZ) | bit(PART_DRAM_WIDTH) |
                bit(PART_DRAM_HZ)),
    COUNTED(SM, "sm_pct", "sm__throughput.avg.pct_of_peak_sustained_active",
            "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    COUNTED(SM, "issue_pct", "sm__inst_issued.avg.pct_of_peak_sustained_active",
            "smsp__issue_active.avg.pct_of_peak_sustained_active"),
    COUNTED(SM, "active_threads", "smsp__average_thread_inst_executed_per_inst_executed.ratio",
            "smsp__thread_inst_executed_per_inst_executed.ratio"),
    DERIVED(SM, sm_cycles_ratio, bit(PART_SM_CYCLES) | bit(PART_SM_CYCLES_MEAN)),
    COUNTED(BANK_CONFLICTS, "shared_pct", "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed"),
    DERIVED(SECTORS, lines_per_load, bit(PART_LOADS) | bit(PART_LOAD_LINES)),
    DERIVED(SECTORS, local_bytes, bit(PART_LOCAL_LOADS) | bit(PART_LOCAL_STORES)),
    COUNTED(CACHES, "l1_pct", "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active",
            "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"),
    DERIVED(CACHES, l2_pct, bit(PART_L2) | bit(PART_SM_CYCLES_ALL) | bit(PART_SM_CYCLES)),
};

constexpr int TABLE_ROWS = sizeof table / sizeof table[0];
static_assert(TABLE_ROWS + PARTS <= BW_METRICS_MAX, "there is room for every metric");

void list(unsigned groups, bw_metrics *out) {
    *out = bw_metrics{};
    for (const auto &row : table) {
        if (groups >> row.family & 1) out->metric[out->count++] = bw_metric{row.name, NAN};
    }
}

// Where the values of what was chosen are; -1: nowhere.
struct metric_choice {
    int row_at[TABLE_ROWS], part_at[PARTS];
    bool known[TABLE_ROWS];
};

bw_status choose_parts(profiler *self, unsigned wanted, metric_choice *out, bool *known) {
    *known = true;
    for (int part = 0; part < PARTS; part++) {
        if (!(wanted >> part & 1)) continue;
        if (out->part_at[part] < 0) BW_TRY(bw_profiler::set_add(self, parts_of[part], &out->part_at[part]));
        *known = *known && out->part_at[part] >= 0;
    }
    return BW_OK;
}

// The metrics of these groups that the chip knows go into the set; the names of the others into the status.
bw_status choose(profiler *self, unsigned groups, metric_choice *out, bw_metrics *metrics) {
    for (int &at : out->part_at) at = -1;
    for (int i = 0; i < TABLE_ROWS; i++) {
        out->known[i] = false;
        if (!(groups >> table[i].family & 1)) continue;
        if (table[i].derive) {
            BW_TRY(choose_parts(self, table[i].parts, out, &out->known[i]));
        } else {
            BW_TRY(bw_profiler::set_add(self, table[i].candidates, &out->row_at[i]));
            out->known[i] = out->row_at[i] >= 0;
        }
        if (!out->known[i] && !table[i].newer) {
            const size_t used = strlen(metrics->status);
            snprintf(metrics->status + used, sizeof metrics->status - used, "%s%s",
                     used ? ", " : "CUPTI does not know for this GPU: ", table[i].name);
        }
    }
    return BW_OK;
}

// What was counted goes where it belongs in the list.
void spread(const metric_choice *choice, const double *values, unsigned groups, bw_metrics *out) {
    double parts[PARTS];
    int listed = 0;
    for (int i = 0; i < PARTS; i++) parts[i] = choice->part_at[i] >= 0 ? values[choice->part_at[i]] : NAN;
    for (int i = 0; i < TABLE_ROWS; i++) {
        if (!(groups >> table[i].family & 1)) continue;
        double *value = &out->metric[listed++].value;
        if (choice->known[i]) *value = table[i].derive ? table[i].derive(parts) : values[choice->row_at[i]];
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
