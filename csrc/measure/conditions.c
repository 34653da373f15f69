/* Reads sensors while a measurement samples, and summarizes their readings. */
#include "measure/conditions.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/order.h"

static const double interval_least_s = 0.02;
static const double energy_interval_s = 0.05;
static const double intervals_per_reading = 20.0;
static const double settled_after_s = 0.2; /* the power sensor is of this measurement; the energy counter is worth it */
static const double energy_least_s = 1.0;
static const double energy_pause_most_s = 0.2; /* after a reading that took very long */
static const double energy_seen_within_s = 0.1;
static const double energy_busy_least = 0.85; /* of that time */

void bw_watch_prepare(bw_session *session) {
    bw_conditions unused;
    if (session->backend->sensors) {
        bw_status_free(session->backend->sensors->read(session->device, false, &unused));
    }
}

void bw_watch_begin(bw_watch *watch, bw_session *session, double now_s) {
    memset(watch, 0, sizeof *watch);
    watch->session = session;
    watch->begin_s = watch->next_s = now_s;
    watch->next_energy_s = now_s + settled_after_s;
    watch->interval_s = interval_least_s;
    watch->first.energy_j = watch->last.energy_j = watch->counter_j = NAN;
    watch->over = session->backend->sensors == NULL;
    watch->found.throttle = BW_THROTTLE_UNKNOWN;
    if (watch->over) {
        snprintf(watch->found.note, sizeof watch->found.note, "the %s backend has no sensors to read",
                 session->backend->name);
    }
}

/* Full: every second reading goes, and from here on they are taken half as often. */
static void keep(bw_watch *watch, const bw_conditions *reading) {
    if (watch->sample_count == BW_READINGS_MOST) {
        watch->sample_count /= 2;
        for (int64_t i = 1; i < watch->sample_count; i++) watch->samples[i] = watch->samples[2 * i];
        watch->interval_s *= 2.0;
    }
    watch->samples[watch->sample_count++] = *reading;
    bw_measured_conditions *found = &watch->found;
    found->readings++;
    if (!(reading->throttle & BW_THROTTLE_UNKNOWN)) {
        found->throttle = (found->throttle & ~(unsigned)BW_THROTTLE_UNKNOWN) | reading->throttle;
    }
}

static void mark_energy(bw_watch *watch, const bw_energy_mark *mark) {
    bool moved = mark->energy_j > watch->counter_j; /* false for a first reading */
    bool in_time = mark->now_s - watch->counter_s <= energy_seen_within_s;
    watch->counter_j = mark->energy_j;
    watch->counter_s = mark->now_s;
    if (!moved || !in_time) return;
    if (isnan(watch->first.energy_j)) watch->first = *mark;
    watch->last = *mark;
}

static void note_reading(bw_watch *watch, bw_conditions *reading, bool with_energy, const bw_energy_mark *mark,
                         double took_s) {
    double pause_s = intervals_per_reading * took_s;
    if (mark->now_s - watch->begin_s < settled_after_s) reading->power_w = NAN;
    keep(watch, reading);
    watch->next_s = mark->now_s + fmax(watch->interval_s, with_energy ? 0.0 : pause_s);
    if (with_energy) {
        mark_energy(watch, mark);
        watch->next_energy_s = mark->now_s + fmax(energy_interval_s, fmin(pause_s, energy_pause_most_s));
    } else {
        watch->found.reading_ns = fmax(watch->found.reading_ns, took_s * 1e9);
    }
}

void bw_watch_look(bw_watch *watch, double now_s, int64_t launches, double busy_ns, bool always) {
    if (watch->over || (!always && now_s < watch->next_s)) return;
    bw_conditions reading;
    bool with_energy = now_s >= watch->next_energy_s;
    double before = bw_now_s();
    bw_status status = watch->session->backend->sensors->read(watch->session->device, with_energy, &reading);
    double took_s = bw_now_s() - before;
    if (status) {
        snprintf(watch->found.note, sizeof watch->found.note, "%s", bw_status_message(status));
        bw_status_free(status);
        watch->over = true;
        return;
    }
    bw_energy_mark mark = {now_s, reading.energy_j, launches, busy_ns};
    note_reading(watch, &reading, with_energy, &mark, took_s);
}

/* Of what is known; NaN when nothing is. */
static double median_of(const bw_watch *watch, size_t member) {
    double known[BW_READINGS_MOST];
    int64_t count = 0;
    for (int64_t i = 0; i < watch->sample_count; i++) {
        double value;
        memcpy(&value, (const char *)&watch->samples[i] + member, sizeof value);
        if (!isnan(value)) known[count++] = value;
    }
    return bw_median(known, count);
}

static double energy_of_launch(const bw_watch *watch) {
    const bw_energy_mark *first = &watch->first, *last = &watch->last;
    double elapsed_s = last->now_s - first->now_s;
    bool busy = (last->busy_ns - first->busy_ns) * 1e-9 >= energy_busy_least * elapsed_s;
    if (isnan(first->energy_j) || elapsed_s < energy_least_s || !busy) return NAN;
    return (last->energy_j - first->energy_j) / (double)(last->launches - first->launches);
}

void bw_watch_end(const bw_watch *watch, bw_measured_conditions *out) {
    *out = watch->found;
    out->sm_clock_mhz = median_of(watch, offsetof(bw_conditions, sm_clock_mhz));
    out->mem_clock_mhz = median_of(watch, offsetof(bw_conditions, mem_clock_mhz));
    out->power_w = median_of(watch, offsetof(bw_conditions, power_w));
    out->energy_j = energy_of_launch(watch);
    out->temperature_c = NAN;
    for (int64_t i = 0; i < watch->sample_count; i++) {
        out->temperature_c = fmax(out->temperature_c, watch->samples[i].temperature_c); /* fmax passes NaN over */
    }
}

void bw_throttle_words(unsigned throttle, char *out, size_t out_size) {
    static const struct {
        unsigned bit;
        const char *word;
    } words[] = {
        {BW_THROTTLE_POWER_CAP, "sw_power_cap"},  {BW_THROTTLE_HW_SLOWDOWN, "hw_slowdown"},
        {BW_THROTTLE_SW_THERMAL, "sw_thermal"},   {BW_THROTTLE_HW_THERMAL, "hw_thermal"},
        {BW_THROTTLE_POWER_BRAKE, "power_brake"},
    };
    size_t used = 0;
    snprintf(out, out_size, "%s", throttle ? "" : "none");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!(throttle & words[i].bit) || used + strlen(words[i].word) + 2 > out_size) continue;
        used += (size_t)snprintf(out + used, out_size - used, "%s%s", used ? ";" : "", words[i].word);
    }
}
