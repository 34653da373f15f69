// Entries as runs: the keys of all entries, one after another, are dealt evenly to as many blocks of each K/V head as
// run at once. A block's run is the end of one entry, whole ones and the beginning of another, so that all blocks begin
// and end together, and a head's neighbors keep step.
// Of entries that are equally long this fills multiprocessors that even splits would leave idle. On an H200 runs take
// 0.97 to 1.0 of the time that memory needs for the longest one, and 3 to 4 us more.
#include <math.h>

#include "cuda/kernels/attention/decode/plan.h"

namespace {

constexpr int64_t step = 16, least = 64;  // keys: what a cut is a multiple of, and of a part
constexpr double part_keys = 128;         // a part more takes about as long as so many keys

int64_t length_of(const bw_dims *dims, int64_t entry) {
    return dims->list ? dims->list[entry] : dims->value[BW_DECODE_KV_LEN];
}

// take(run, entry, first key, keys) for every part in order: those of an entry but its last one end their runs. Runs
// may be left out.
template <typename Take>
void deal(const bw_dims *dims, int64_t runs, Take take) {
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    double all = part_keys * (double)(batch + runs - 1);
    for (int64_t b = 0; b < batch; b++) all += (double)length_of(dims, b);
    double room = all / (double)runs;
    int64_t run = 0;
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t first = 0, left = length_of(dims, b); left > 0;) {
            const double fits = room - part_keys;
            int64_t keys = left;
            if (run + 1 < runs && (double)left > fits + 0.5 * (double)least) {
                keys = (int64_t)floor(fits / (double)step + 0.5) * step;
                if (keys < least) {
                    keys = 0;
                } else if (left - keys < least) {
                    keys = left;
                }
            }
            if (keys > 0) {
                take(run, b, first, keys);
                first += keys;
                left -= keys;
                room -= (double)keys + part_keys;
            }
            if (left > 0) {
                run++;
                room += all / (double)runs;
            }
        }
    }
}

}  // namespace

bw_decode_run_counts bw_decode_count_runs(const bw_dims *dims, int64_t limit) {
    bw_decode_run_counts counts = {};
    int64_t last_run = -1, last_entry = -1, splits = 0;
    deal(dims, limit, [&](int64_t run, int64_t entry, int64_t, int64_t) {
        counts.parts++;
        counts.runs += run != last_run;
        last_run = run;
        splits = entry == last_entry ? splits + 1 : 1;
        last_entry = entry;
        if (splits > 1) counts.divided += splits == 2 ? 2 : 1;
        counts.splits = bw_max64(counts.splits, splits);
    });
    return counts;
}

// The first part of each run, then all others.
void bw_decode_deal_parts(const bw_dims *dims, int64_t limit, int64_t runs, bw_decode_part *out) {
    int64_t last_run = -1, last_entry = -1, run_at = -1, other_at = runs, at = -1, first_at = -1, first_run = -1;
    // An entry's parts are its first one and those that the runs after that begin with.
    const auto close = [&] {
        if (first_at < 0) return;
        const unsigned char splits = (unsigned char)(1 + run_at - first_run);
        out[first_at].splits = splits;
        for (int64_t i = first_run + 1; i <= run_at; i++) out[i].splits = splits;
    };
    deal(dims, limit, [&](int64_t run, int64_t entry, int64_t first, int64_t keys) {
        if (entry != last_entry) close();
        const int64_t before = at;
        at = run == last_run ? other_at++ : ++run_at;
        if (run == last_run) out[before].next = (unsigned short)at;
        last_run = run;
        if (entry != last_entry) {
            first_at = at;
            first_run = run_at;
        }
        last_entry = entry;
        out[at] = {(int)entry, (int)first, (int)keys, (unsigned char)(run_at - first_run), 1, 0};
    });
    close();
}
