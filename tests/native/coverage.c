#include "coverage.h"

#include "check.h"

const char *const coverage_names[] = {"steady", "bimodal", "drifting", NULL};

static const double slow_share = 0.3, slow_by = 4.0, narrow = 0.25, climb = 4.0;

typedef struct source {
    const coverage_of *request;
    uint64_t state;
    double level; /* of the noise, in units of it */
    bool begun, slow;
    int64_t limit; /* replays until the time limit, about */
} source;

/* splitmix64 */
static double uniform(source *self) {
    uint64_t z = self->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
}

static double normal(source *self) {
    double radius = sqrt(-2.0 * log(uniform(self)));
    return radius * cos(6.283185307179586 * uniform(self));
}

/* Noise in units of its standard deviation: a first-order autoregression, or a chain of two states. */
static double step(source *self) {
    double rho = self->request->correlation;
    if (self->request->model == COVERAGE_BIMODAL) {
        if (!self->begun || uniform(self) >= rho) self->slow = uniform(self) < slow_share;
        self->begun = true;
        return slow_by * self->slow + narrow * normal(self);
    }
    self->level = self->begun ? rho * self->level + sqrt(1.0 - rho * rho) * normal(self) : normal(self);
    self->begun = true;
    return self->level;
}

static double next_time(void *context, int64_t replay) {
    source *self = context;
    const coverage_of *request = self->request;
    double units = step(self);
    if (request->model == COVERAGE_DRIFTING) units += climb * (double)replay / (double)self->limit;
    return request->launch_ms * 1e6 * (1.0 + request->noise * units);
}

static double normal_share(double units) {
    return 0.5 * erfc(-units / sqrt(2.0));
}

/* In units of the noise. A drift's is that of the whole time until the limit. */
static double true_median(coverage_model model) {
    if (model == COVERAGE_STEADY) return 0.0;
    if (model == COVERAGE_DRIFTING) return 0.5 * climb;
    double low = -1.0, high = slow_by;
    for (int i = 0; i < 100; i++) {
        double middle = 0.5 * (low + high);
        double below =
            (1.0 - slow_share) * normal_share(middle / narrow) + slow_share * normal_share((middle - slow_by) / narrow);
        *(below < 0.5 ? &low : &high) = middle;
    }
    return low;
}

static bw_status no_work(void *context, int64_t set, bool captured) {
    (void)context, (void)set, (void)captured;
    return BW_OK;
}

static bool run_trial(bw_session *session, const coverage_of *request, source *source, coverage_found *out) {
    bw_work empty = {.run = no_work, .foreign = true};
    bw_call call = {session, &empty, &empty, 1, 0};
    bw_measure_options options = usual_options();
    bw_measurement m = {0};
    options.cache = BW_CACHE_HOT;
    options.max_seconds = request->max_seconds;
    fake.clock = FAKE_CUSTOM;
    fake.custom_time = next_time;
    fake.custom_context = source;
    fake.replays = 0;
    if (!OK(bw_measure_call(&call, &options, &m))) return false;
    double median = request->launch_ms * 1e6 * (1.0 + request->noise * true_median(request->model));
    bool covered = m.statistics.low <= median && median <= m.statistics.high;
    out->covered += covered;
    out->converged += m.converged;
    out->covered_converged += covered && m.converged;
    for (int64_t i = 0; i < m.statistics.count; i++) out->seconds += m.samples_ns[i] * 1e-9 / request->trials;
    out->samples += (double)m.statistics.count / request->trials;
    bw_measurement_free(&m);
    return true;
}

bool coverage_run(const coverage_of *request, coverage_found *out) {
    bw_session *session = NULL;
    *out = (coverage_found){0};
    fake.launch_ns = request->launch_ms * 1e6;
    fake.fixed_replay = false;
    bool ok = OK(bw_session_open(&fake_host_backend, 0, &session));
    for (int trial = 0; ok && trial < request->trials; trial++) {
        source source = {.request = request,
                         .state = request->seed + (uint64_t)trial * 0x632be59bd9b4e019u,
                         .limit = (int64_t)(request->max_seconds * 1e3 / request->launch_ms)};
        ok = run_trial(session, request, &source, out);
    }
    bw_session_close(session);
    return ok;
}
