/* Computes the median of samples and its confidence interval. */
#include "measure/statistics.h"

#include <math.h>
#include <string.h>

#include "base/order.h"
#include "measure/patterns.h"

enum { BLOCKS_LEAST = 10 }; /* of more than one sample each */

static const double resemblance_small = 0.3;
static const double resemblance_most = 0.95;
static const double resemblance_errors = 2.0; /* standard errors added to what was seen */
static const double resemblance_bias = 4.0;   /* few blocks show too little of it, by about this many parts of 1/n */

bool bw_median_ranks(int64_t count, int64_t *low, int64_t *high) {
    /* The number of samples below the median is binomial(n, 1/2). Dropping k samples at each end leaves the interval
     * [k, n - 1 - k], which misses with probability 2 P(X <= k). Take the largest k that keeps this below 5 %. */
    double log_probability = -(double)count * log(2.0); /* of X = 0 */
    double below = 0.0;
    int64_t k = -1;
    for (int64_t i = 0; i < count / 2; i++) {
        below += exp(log_probability);
        if (2.0 * below > 0.05) break;
        k = i;
        log_probability += log((double)(count - i)) - log((double)(i + 1));
    }
    if (k < 0) return false;
    *low = k;
    *high = count - 1 - k;
    return true;
}

int64_t bw_statistics_scratch(int64_t count) {
    return 2 * count;
}

/* The median of each block of `length` samples, the last ones: the oldest are left out where there is a remainder. A
 * length is odd, so that a block's median is as likely above the samples' median as below it. */
static void block_medians(const double *samples, int64_t count, int64_t length, double *medians, double *scratch) {
    int64_t blocks = count / length;
    const double *block = samples + (count - blocks * length);
    for (int64_t i = 0; i < blocks; i++, block += length) {
        memcpy(scratch, block, (size_t)length * sizeof *scratch);
        medians[i] = bw_median(scratch, length);
    }
}

/* The number of sorted values below `value`, plus half of those equal to it. */
static double rank_of(const double *sorted, int64_t count, double value) {
    int64_t ends[2]; /* the first that is not below, the first that is above */
    for (int above = 0; above < 2; above++) {
        int64_t low = 0, high = count;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            bool before = above ? sorted[middle] <= value : sorted[middle] < value;
            if (before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        ends[above] = low;
    }
    return 0.5 * (double)(ends[0] + ends[1]);
}

/* How much neighbours resemble each other: about their correlation, from the von Neumann ratio of the ranks, which
 * single late samples do not hide. 0 for independent values and for equal ones. */
static double resemblance_of(const double *values, const double *sorted, int64_t count) {
    double steps = 0.0, spread = 0.0, before = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double rank = rank_of(sorted, count, values[i]), off = rank - 0.5 * (double)count;
        if (i) steps += (rank - before) * (rank - before);
        spread += off * off;
        before = rank;
    }
    double found = spread > 0.0 ? 1.0 - 0.5 * steps / spread : 0.0;
    return found + resemblance_bias * fmax(found, 0.0) / (double)count;
}

/* By how much an interval of `count` values is too narrow if neighbours resemble each other as much as they may. */
static double widening(double found, int64_t count) {
    double most = found + resemblance_errors / sqrt((double)count);
    most = fmin(fmax(most, 0.0), resemblance_most);
    return sqrt((1.0 + most) / (1.0 - most));
}

/* The ranks' distance from the middle is what is widened, as the values between two modes may be; beyond the first and
 * the last rank it is the values'. */
static void widen(const double *sorted, int64_t count, double wider, bw_statistics *out) {
    int64_t low, high;
    if (!bw_median_ranks(count, &low, &high)) return;
    double distance = wider * (0.5 - (double)low / (double)(count - 1)), inside = fmin(distance, 0.5);
    double from = bw_quantile(sorted, count, 0.5 - inside), to = bw_quantile(sorted, count, 0.5 + inside);
    out->low = fmax(0.0, out->median - distance / inside * fmax(0.0, out->median - from)); /* no time is below 0 */
    out->high = out->median + distance / inside * fmax(0.0, to - out->median);
}

static void find_interval(const double *samples, double *scratch, bw_statistics *out) {
    int64_t blocks;
    double found, *sorted = scratch + out->count;
    for (out->block = 1;; out->block = 2 * out->block + 1) {
        blocks = out->count / out->block;
        block_medians(samples, out->count, out->block, scratch, sorted);
        memcpy(sorted, scratch, (size_t)blocks * sizeof *sorted);
        bw_sort(sorted, blocks);
        found = resemblance_of(scratch, sorted, blocks);
        if (found <= resemblance_small || out->count / (2 * out->block + 1) < BLOCKS_LEAST) break;
    }
    widen(sorted, blocks, widening(found, blocks), out);
}

static void hold(bw_statistics *self, double low, double high) {
    self->low = fmin(self->low, low);
    self->high = fmax(self->high, high);
}

bw_statistics bw_statistics_of(const double *samples, int64_t count, double *scratch) {
    bw_statistics result = {.count = count, .low = -INFINITY, .high = INFINITY, .halves = INFINITY};
    int64_t half = count / 2;
    memcpy(scratch, samples, (size_t)count * sizeof *scratch);
    double first = bw_median(scratch, half), second = bw_median(scratch + half, count - half);
    bw_sort(scratch, count);
    result.median = bw_quantile(scratch, count, 0.5);
    result.minimum = scratch[0];
    result.noise = (bw_quantile(scratch, count, 0.75) - bw_quantile(scratch, count, 0.25)) / result.median;
    if (half) result.halves = fabs(first - second) / result.median;
    bw_drift drift = bw_drift_of(samples, count, scratch + count);
    bw_states states = bw_states_of(samples, scratch, count);
    result.two_states = states.two && drift.slope == 0.0;
    result.drift = drift.slope != 0.0 && result.median > 0.0 ? drift.slope / result.median : 0.0;
    find_interval(samples, scratch, &result);
    if (result.two_states) hold(&result, states.low, states.high);
    if (drift.slope != 0.0) hold(&result, drift.low, drift.high);
    return result;
}

bool bw_statistics_converged(const bw_statistics *statistics, double target) {
    double median = statistics->median, widest = fmax(statistics->high - median, median - statistics->low);
    return widest <= target * median && statistics->halves <= target;
}
