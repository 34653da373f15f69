/* Computes the median of samples and its confidence interval, and finds what a median hides: two states, or drift. */
#include "measure/statistics.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/order.h"

enum {
    BLOCKS_LEAST = 10, /* of more than one sample each */
    STATES_LEAST = 16, /* samples */
    BLOCKS = 12,       /* a drift's, or up to twice as many */
    DRIFT_LEAST = 10,  /* samples */
    TICKS_LEAST = 4    /* between the states */
};

static const double share_least = 0.05;    /* of the samples, in the rarer state: if states last */
static const double share_of_chance = 0.2; /* if they do not */
static const double clipped = 0.02;        /* of the samples at each end: single late ones make no state */
static const double separation = 2.0; /* of the medians, in sums of both standard deviations; more for few samples */
static const double separation_few = 30.0; /* parts of 1/n more */
static const double apart_least = 0.01;    /* of the median */
static const double apart_of_levels = 0.4; /* of the median, where there are too few levels to tell the ticks */
static const double between_most = 0.25;   /* of the rarer state's samples, in the middle third between the medians */
static const double same_least = 1e-9;     /* of the median: smaller steps are rounding */
static const double lasting = 3.0;         /* standard errors below the number of changes that chance makes */
static const double share_errors = 2.5;    /* standard errors to which a state's share of the time is known */
static const double deviations = 1.349;    /* of a normal distribution, from one quartile to the other */
static const double order_least = 0.8;     /* of a drift: Kendall's tau of the blocks' lower quartiles */
static const double climb_least = 0.02;    /* of the median, from the first block to the last */
static const double climb_late = 0.2;      /* of all of the climb, in the later half: a warm-up ends before it */

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

static int64_t values_below(const double *sorted, int64_t count, double value, bool or_equal) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (sorted[middle] < value || (or_equal && sorted[middle] == value)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The number of sorted values below `value`, plus half of those equal to it. */
static double rank_of(const double *sorted, int64_t count, double value) {
    return 0.5 * (double)(values_below(sorted, count, value, false) + values_below(sorted, count, value, true));
}

/* How much neighbors resemble each other: about their correlation, from the von Neumann ratio of the ranks, which
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

/* By how much an interval of `count` values is too narrow if neighbors resemble each other as much as they may. */
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

/* Where the sorted samples part best into two: the variance between the parts is largest. */
static int64_t best_split(const double *sorted, int64_t count) {
    int64_t ends = (int64_t)(clipped * (double)count), least = bw_max64(3, (int64_t)(share_least * (double)count));
    double from = sorted[ends], to = sorted[count - 1 - ends], origin = sorted[count / 2];
    double total = 0.0, below = 0.0, best = -1.0;
    int64_t split = 0;
    for (int64_t i = 0; i < count; i++) total += fmin(fmax(sorted[i], from), to) - origin;
    for (int64_t i = 1; i <= count - least; i++) {
        below += fmin(fmax(sorted[i - 1], from), to) - origin;
        if (i < least || sorted[i] <= sorted[i - 1]) continue;
        double apart = below / (double)i - (total - below) / (double)(count - i);
        double between = apart * apart * (double)i * (double)(count - i);
        if (between > best) {
            best = between;
            split = i;
        }
    }
    return split;
}

/* Whether so many units lie between two values that a clock's ticks do not explain it. */
static bool beyond_ticks(const double *sorted, int64_t count, double apart, double median) {
    double tick = INFINITY;
    int64_t levels = 1;
    for (int64_t i = 1; i < count; i++) {
        double step = sorted[i] - sorted[i - 1];
        if (step <= same_least * median) continue;
        tick = fmin(tick, step);
        levels++;
    }
    return apart >= (levels < TICKS_LEAST ? apart_of_levels * median : TICKS_LEAST * tick);
}

static double deviation(const double *sorted, int64_t count) {
    return (bw_quantile(sorted, count, 0.75) - bw_quantile(sorted, count, 0.25)) / deviations;
}

typedef struct states {
    bool two;
    double low, high; /* between which the median lies, as far as the states' shares of the time are known: both states,
                       * where either may have it */
} states;

/* Two states are a gap that is wide beside the spread on each of its sides, and wider than a clock's ticks. */
static states find_states(const double *samples, const double *sorted, int64_t count) {
    states result = {.two = false};
    int64_t split = count < STATES_LEAST ? 0 : best_split(sorted, count), changes = 0;
    if (!split) return result;
    const double *upper = sorted + split;
    int64_t above = count - split, rarer = bw_min64(split, above);
    double median = bw_quantile(sorted, count, 0.5), first = bw_quantile(sorted, split, 0.5);
    double second = bw_quantile(upper, above, 0.5), apart = second - first;
    double wanted = separation + separation_few / (double)count;
    if (apart < apart_least * median || apart < wanted * (deviation(sorted, split) + deviation(upper, above)))
        return result;
    int64_t between =
        values_below(sorted, count, second - apart / 3, false) - values_below(sorted, count, first + apart / 3, false);
    if ((double)between > between_most * (double)rarer || !beyond_ticks(sorted, count, apart, median)) return result;
    for (int64_t i = 1; i < count; i++) changes += (samples[i] < *upper) != (samples[i - 1] < *upper);
    double share = (double)split / (double)count, pairs = share * (1.0 - share);
    double by_chance = 2.0 * pairs * (double)count, error = by_chance / sqrt((double)count);
    bool lasts = (double)changes < by_chance - lasting * error;
    result.two = (double)rarer >= (lasts ? share_least * (double)count : share_of_chance * (double)count + 2.0);
    /* The share's error in a chain of two states, which change as rarely as is likely. */
    double rate = fmin(1.0, fmax(0.5, (double)changes - 2.0 * sqrt((double)changes)) / by_chance);
    double off = share_errors * sqrt(pairs * (2.0 / rate - 1.0) / (double)count);
    bool either = fabs(share - 0.5) <= off;
    result.low = either ? bw_quantile(sorted, split, 0.25) : bw_quantile(sorted, count, fmax(0.0, 0.5 - off));
    result.high = either ? bw_quantile(upper, above, 0.75) : bw_quantile(sorted, count, fmin(1.0, 0.5 + off));
    return result;
}

typedef struct drift {
    double slope;     /* per sample; 0: the samples do not drift */
    double low, high; /* the ends of what they drift through */
} drift;

/* A climb, or a fall, of the lower quartiles of blocks, nearly all in order. Scratch for `count` doubles. */
static drift find_drift(const double *samples, int64_t count, double *scratch) {
    double levels[2 * BLOCKS], slopes[BLOCKS * (2 * BLOCKS - 1)];
    drift result = {.slope = 0.0};
    if (count < DRIFT_LEAST) return result;
    int64_t length = bw_max64(1, count / BLOCKS), blocks = count / length, pairs = 0, order = 0;
    const double *block = samples + (count - blocks * length);
    for (int64_t i = 0; i < blocks; i++, block += length) {
        memcpy(scratch, block, (size_t)length * sizeof *scratch);
        bw_sort(scratch, length);
        levels[i] = bw_quantile(scratch, length, 0.25); /* what disturbs makes single samples longer */
        for (int64_t j = 0; j < i; j++) {
            double climb = levels[i] - levels[j];
            order += (climb > 0.0) - (climb < 0.0);
            slopes[pairs++] = climb / (double)(i - j);
        }
    }
    if (fabs((double)order) < order_least * (double)pairs) return result;
    double slope = bw_median(slopes, pairs), climb = slope * (double)(blocks - 1);
    double first = levels[0], last = levels[blocks - 1];
    if (fabs(last - levels[blocks / 2]) < climb_late * fabs(last - first)) return result;
    if (fabs(climb) < climb_least * bw_median(levels, blocks)) return result;
    result.slope = slope / (double)length;
    result.low = fmin(first, last);
    result.high = fmax(first, last);
    return result;
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
    const drift drift = find_drift(samples, count, scratch + count);
    const states states = find_states(samples, scratch, count);
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
