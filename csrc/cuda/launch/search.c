/* A search times all candidates once (of those that take long the first few), and then the best few longer. The clock
 * of a GPU that had nothing to do rises first, or the first candidates would be timed worst. */
#include "cuda/launch/search.h"

#include <math.h>
#include <stdlib.h>

#include "cuda/launch/graph.h"
#include "cuda/launch/replay.h"

enum { LAUNCHES_MOST = 512, SURE_CANDIDATES = 4, FINALISTS = 6, FINAL_TIMES = 3 };
static const double warm_graph_ms = 2, first_graph_ms = 0.2, final_graph_ms = 0.7;
static const double warm_least_ms = 20, warm_most_ms = 100;
static const double settled_share = 0.01; /* of two graphs' times, when the clock has stopped rising */
static const double budget_ms = 40;       /* the first few are timed however long they take */
static const double near_share = 0.25;    /* of the best: a first time may be off by so much */
static const double tie_share = 0.01;

typedef struct candidate {
    int index;
    double ms; /* of a launch; infinite: not timed, or it cannot be used */
} candidate;

typedef struct search {
    const bw_search_calls *calls;
    bw_replay replay;
    double spent_ms;
    int64_t launched;
    int candidate, launches; /* that are captured */
} search;

static bw_status enqueue_launches(void *context) {
    search *self = context;
    for (int i = 0; i < self->launches; i++) {
        BW_TRY(self->calls->enqueue(self->calls->context, self->candidate, self->launched++));
    }
    return BW_OK;
}

/* Without a graph: the candidate is unavailable, and none for us. Other errors are the device's. */
typedef struct timed_graph {
    cudaGraphExec_t replay;
    int64_t first;
    int launches;
} timed_graph;

static bw_status get_ready(search *self, const candidate *candidate, const timed_graph *graph) {
    return self->calls->ready(self->calls->context, candidate->index, graph->first, graph->launches);
}

static bw_status make_graph(search *self, const candidate *candidate, int launches, timed_graph *out) {
    bw_device *device = self->replay.device;
    cudaGraph_t graph = NULL;
    *out = (timed_graph){.first = self->launched, .launches = launches};
    self->candidate = candidate->index;
    self->launches = launches;
    bw_status status = get_ready(self, candidate, out);
    if (!status) status = bw_cuda_graph_capture(device, device->stream, enqueue_launches, self, &graph);
    if (bw_status_code(status) == BW_CODE_UNAVAILABLE) {
        bw_status_free(status);
        return BW_OK;
    }
    BW_TRY(status);
    return bw_cuda_graph_finish(device, device->stream, graph, &out->replay);
}

/* Sets candidate->ms. */
static bw_status run_graph(search *self, const timed_graph *graph, candidate *candidate) {
    double ns = INFINITY;
    if (graph->replay) BW_TRY(bw_replay_run(&self->replay, self->replay.device->stream, graph->replay, NULL, &ns));
    if (graph->replay) self->spent_ms += ns / 1e6;
    candidate->ms = ns / 1e6 / graph->launches;
    return BW_OK;
}

static void free_graph(search *self, const timed_graph *graph) {
    if (graph->replay) BW_CUDA_IGNORE(&self->replay.device->api, graph_exec_destroy(graph->replay));
}

static bw_status time_candidate(search *self, candidate *candidate, int launches) {
    timed_graph graph;
    bw_status status = make_graph(self, candidate, launches, &graph);
    if (!status) status = run_graph(self, &graph, candidate);
    free_graph(self, &graph);
    return status;
}

static int launches_for(const candidate *candidate, double graph_ms) {
    return (int)fmax(1, fmin(LAUNCHES_MOST, graph_ms / candidate->ms));
}

static bw_status raise_clock(search *self, candidate *candidate) {
    timed_graph graph;
    bool settled = false;
    const double least_ms = warm_least_ms - bw_replay_busy_ns(self->replay.device) / 1e6;
    BW_TRY(time_candidate(self, candidate, 1));
    const double graph_ms = least_ms > 0 ? warm_graph_ms : first_graph_ms;
    bw_status status = make_graph(self, candidate, launches_for(candidate, graph_ms), &graph);
    self->spent_ms = 0;
    while (!status && !settled && isfinite(candidate->ms)) {
        const double before_ms = candidate->ms;
        status = run_graph(self, &graph, candidate);
        const bool rises = candidate->ms < before_ms * (1 - settled_share);
        settled = self->spent_ms >= (rises ? warm_most_ms : least_ms);
    }
    free_graph(self, &graph);
    self->spent_ms = 0;
    return status;
}

/* All do the same work, so that the first one's time says how many launches a graph holds. */
static bw_status time_all(search *self, candidate *candidates, int count) {
    int launches = 0;
    for (int i = 0; i < count && (i < SURE_CANDIDATES || self->spent_ms < budget_ms); i++) {
        candidate *one = &candidates[i];
        if (launches == 0) {
            BW_TRY(raise_clock(self, one));
            if (!isfinite(one->ms)) continue;
            launches = launches_for(one, first_graph_ms);
        }
        BW_TRY(time_candidate(self, one, launches));
    }
    return BW_OK;
}

static int compare_candidates(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->ms != b->ms) return a->ms > b->ms ? 1 : -1;
    return a->index - b->index;
}

/* The shortest of several times each, in turn, as far as the budget lasts. A graph is made once; `ready` comes before
 * each time, since it may prepare memory that all candidates use. */
static bw_status time_finalists(search *self, candidate *sorted, int count) {
    timed_graph graphs[FINALISTS] = {0};
    double best_ms[FINALISTS];
    int field = 0;
    bw_status status = BW_OK;
    while (field < count && field < FINALISTS && sorted[field].ms <= sorted[0].ms * (1 + near_share)) {
        best_ms[field++] = INFINITY;
    }
    for (int i = 0; field > 1 && i < FINAL_TIMES * field; i++) {
        if (i % field == 0 && self->spent_ms >= budget_ms) break;
        candidate *one = &sorted[i % field];
        timed_graph *graph = &graphs[i % field];
        if (i < field) {
            BW_GOTO(make_graph(self, one, launches_for(one, final_graph_ms), graph));
        } else if (graph->replay) {
            BW_GOTO(get_ready(self, one, graph));
        }
        BW_GOTO(run_graph(self, graph, one));
        one->ms = best_ms[i % field] = fmin(best_ms[i % field], one->ms);
    }
cleanup:
    for (int i = 0; i < field; i++) free_graph(self, &graphs[i]);
    return status;
}

bw_status bw_search_fastest(bw_device *device, const bw_search_calls *calls, int count, int *best) {
    search self = {.calls = calls};
    candidate candidates[BW_SEARCH_MOST];
    double best_ms = INFINITY;
    for (int i = 0; i < count; i++) candidates[i] = (candidate){i, INFINITY};
    *best = -1;
    bw_status status = bw_replay_open(device, &self.replay);
    if (!status) status = time_all(&self, candidates, count);
    qsort(candidates, (size_t)count, sizeof *candidates, compare_candidates);
    if (!status && count > 0 && isfinite(candidates[0].ms)) status = time_finalists(&self, candidates, count);
    bw_replay_close(&self.replay);
    if (status) return status;
    count = count < FINALISTS ? count : FINALISTS;
    for (int i = 0; i < count; i++) best_ms = fmin(best_ms, candidates[i].ms);
    /* Where noise could have decided, the order does, so that the same case gets the same candidate the next time. */
    for (int i = 0; i < count && isfinite(best_ms); i++) {
        const bool ties = candidates[i].ms <= best_ms * (1 + tie_share);
        if (ties && (*best < 0 || candidates[i].index < *best)) *best = candidates[i].index;
    }
    return BW_OK;
}
