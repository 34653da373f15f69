/* Every backend call and every host allocation of a measurement made to fail in turn: a status, no crash, no leak. */
#include <stdlib.h>

#include "check.h"

/* Open, measure cold and hot, close. */
static bw_status whole_measurement(int op_index) {
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    options.max_seconds = 0.0;
    bw_status status = open_small(&f, op_index, true);
    if (!status) status = bw_measure(f.content, &options, &m);
    if (!status && !m.verdict.verified) status = bw_fail(BW_CODE_SYSTEM, "not verified: %s", m.verdict.reason);
    bw_measurement_free(&m);
    options.cache = BW_CACHE_HOT;
    if (!status) status = bw_measure(f.content, &options, &m);
    bw_measurement_free(&m);
    close_case(&f);
    return status;
}

static void expect_nothing_left(const char *when) {
    CHECK(!fake.live_allocations && !fake.live_bytes && !fake.live_plans && !fake.live_states && !fake.live_devices,
          "%s: %lld allocations, %lld plans, %lld states, %lld devices left", when, (long long)fake.live_allocations,
          (long long)fake.live_plans, (long long)fake.live_states, (long long)fake.live_devices);
}

static void fail_every_call(int op_index, bw_code code) {
    int64_t at = 1;
    fake.cache_bytes = 1 << 13;
    fake.scratch[0] = 100;
    fake.workspace[0] = 100;
    fake.launch_ns = 2e6;
    for (;; at++) {
        fake.calls = 0;
        fake.failed = false;
        fake.fail_at = at;
        fake.fail_code = code;
        bw_status status = whole_measurement(op_index);
        expect_nothing_left(fake.failed_call);
        if (!fake.failed) {
            OK(status);
            break;
        }
        FAILS(status, code, "planned failure");
    }
    CHECK(at > 60, "only %" PRId64 " calls were made", at);
}

static void every_call_fails_in_turn(int op_index) {
    fail_every_call(op_index, BW_CODE_DEVICE);
}

static void every_call_lacks_memory_in_turn(int op_index) {
    OK(bw_op_find("kv_append", &op_index));
    fail_every_call(op_index, BW_CODE_MEMORY);
}

/* With one variant, UNAVAILABLE has nothing to give way to. */
static void every_call_is_unavailable_in_turn(int op_index) {
    OK(bw_op_find("kv_gather", &op_index));
    fail_every_call(op_index, BW_CODE_UNAVAILABLE);
}

static void every_host_allocation_fails_in_turn(int op_index) {
    fake.launch_ns = 2e6;
    fake.scratch[0] = fake.workspace[0] = 100;
    OK(whole_measurement(op_index)); /* the image of the outputs is kept from here on */
    fake_host_memory(0);
    OK(whole_measurement(op_index));
    int64_t made = fake_host_memory(0);
    CHECK(made > 5, "%" PRId64 " allocations", made);
    for (int64_t at = 1; at <= made; at++) {
        fake_host_memory(at);
        bw_status status = whole_measurement(op_index);
        fake_host_memory(0);
        CHECK(bw_status_code(status) == BW_CODE_MEMORY, "allocation %" PRId64 " of %" PRId64 ": code %d, %s", at, made,
              (int)bw_status_code(status), bw_status_message(status));
        CHECK(bw_status_message(status)[0], "no message");
        bw_status_free(status);
        expect_nothing_left("host memory");
    }
}

/* After a call has failed, the same case works. */
static void a_case_survives_a_failure(int op_index) {
    fixture f;
    bw_measure_options options = usual_options();
    fake.cache_bytes = 1 << 13;
    fake.launch_ns = 2e6;
    if (!OK(open_small(&f, op_index, true))) return close_case(&f);
    for (int64_t at = 1;; at++) {
        bw_measurement m = {0};
        fake.failed = false;
        fake.fail_at = fake.calls + at;
        fake.fail_code = BW_CODE_DEVICE;
        bw_status status = bw_measure(f.content, &options, &m);
        if (!fake.failed) {
            OK(status);
            bw_measurement_free(&m);
            break;
        }
        FAILS(status, BW_CODE_DEVICE, "planned failure");
        CHECK(m.samples_ns == NULL, "samples of a measurement that failed");
        fake.fail_at = 0;
        if (OK(bw_measure(f.content, &options, &m))) CHECK(m.verdict.verified, "%s", m.verdict.reason);
        bw_measurement_free(&m);
    }
    close_case(&f);
}

const check fault_checks[] = {
    {"every_call_fails_in_turn", true, every_call_fails_in_turn},
    {"every_call_lacks_memory_in_turn", false, every_call_lacks_memory_in_turn},
    {"every_call_is_unavailable_in_turn", false, every_call_is_unavailable_in_turn},
    {"every_host_allocation_fails_in_turn", true, every_host_allocation_fails_in_turn},
    {"a_case_survives_a_failure", true, a_case_survives_a_failure},
    {NULL, false, NULL},
};
