/* Finds two states and drift in samples. */
#include "measure/patterns.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/order.h"

enum {
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

/* ---- two states ---- */

static int64_t samples_below(const double *sorted, int64_t count, double value) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (sorted[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
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

bw_states bw_states_of(const double *samples, const double *sorted, int64_t count) {
    bw_states result = {.two = false};
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
        samples_below(sorted, count, second - apart / 3) - samples_below(sorted, count, first + apart / 3);
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

/* ---- drift ---- */

bw_drift bw_drift_of(const double *samples, int64_t count, double *scratch) {
    double levels[2 * BLOCKS], slopes[BLOCKS * (2 * BLOCKS - 1)];
    bw_drift result = {.slope = 0.0};
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
