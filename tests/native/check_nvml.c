/* csrc/cuda/libraries/nvml.c with a library of known values (libraries/fake_nvml.c, named by BWPROF_TEST_NVML): what it
 * reads, and every dlopen, dlsym and call of the library made to fail in turn. */
#include <dlfcn.h>
#include <stdlib.h>

#include "check.h"
#include "cuda/libraries/nvml.h"
#include "libraries/fake_nvml.h"

/* ---- the loader: the linker sends its calls here (-Wl,--wrap) ---- */

static int64_t loader_calls, loader_fail_at, open_libraries;

void *__real_dlopen(const char *path, int mode);
void *__real_dlsym(void *handle, const char *name);
int __real_dlclose(void *handle);

void *__wrap_dlopen(const char *path, int mode) {
    void *handle = ++loader_calls == loader_fail_at ? NULL : __real_dlopen(path, mode);
    open_libraries += handle != NULL;
    return handle;
}

void *__wrap_dlsym(void *handle, const char *name) {
    return ++loader_calls == loader_fail_at ? NULL : __real_dlsym(handle, name);
}

int __wrap_dlclose(void *handle) {
    open_libraries--;
    return __real_dlclose(handle);
}

/* ---- the fake library's state ---- */

typedef struct library {
    void *handle; /* kept open by the check, so that the state stays */
    fake_nvml_state *state;
} library;

static bool load(library *out) {
    const char *path = getenv("BWPROF_TEST_NVML");
    out->handle = path ? __real_dlopen(path, RTLD_NOW) : NULL;
    out->state = out->handle ? __real_dlsym(out->handle, "fake_nvml") : NULL;
    CHECK(out->state, "BWPROF_TEST_NVML names no fake library: %s", path ? path : "unset");
    loader_calls = loader_fail_at = open_libraries = 0;
    return out->state != NULL;
}

static void expect_closed(const library *library, const char *when) {
    CHECK(library->state->live == 0, "%s: initialized %lld times too often", when, (long long)library->state->live);
    CHECK(open_libraries == 0, "%s: %lld libraries left open", when, (long long)open_libraries);
}

static void unload(library *library) {
    if (!library->handle) return;
    expect_closed(library, "in the end");
    __real_dlclose(library->handle);
}

/* What one use of the library came to. */
typedef struct use {
    bw_status opened, read;
    bw_conditions conditions;
    bw_management management;
} use;

static use use_library(const char *uuid, const char *pci) {
    use result = {NULL, NULL, {0}, {.note = ""}};
    bw_nvml *nvml = NULL;
    result.opened = bw_nvml_open(uuid, pci, &nvml);
    CHECK(!result.opened == (nvml != NULL), "opened and failed at once");
    if (nvml) {
        result.read = bw_nvml_conditions(nvml, true, &result.conditions);
        bw_nvml_management(nvml, &result.management);
    }
    bw_nvml_close(nvml);
    return result;
}

static void forget(use *use) {
    bw_status_free(use->opened);
    bw_status_free(use->read);
}

static void expect_values(const use *use) {
    const bw_conditions *c = &use->conditions;
    CHECK(c->sm_clock_mhz == 1755, "SM clock %g", c->sm_clock_mhz);
    CHECK(c->mem_clock_mhz == 3201, "memory clock %g", c->mem_clock_mhz);
    CHECK(fabs(c->power_w - 412.345) < 1e-9, "power %g", c->power_w);
    CHECK(c->temperature_c == 61, "temperature %g", c->temperature_c);
    CHECK(fabs(c->energy_j - 5000000123.456) < 1e-5, "energy %.6f", c->energy_j);
    CHECK_EQUAL(c->throttle, 0);
    const bw_management *m = &use->management;
    CHECK(strcmp(m->driver, "580.159.04") == 0, "driver %s", m->driver);
    CHECK(strstr(m->library, "nvml"), "library %s", m->library);
    CHECK_EQUAL(m->ecc, 1);
    CHECK_EQUAL(m->persistence, 0);
    CHECK(m->power_limit_w == 700, "limit %g", m->power_limit_w);
    CHECK(strcmp(m->link, "PCIe 5.0 x16") == 0, "link %s", m->link);
    CHECK(fabs(m->link_gb_s - 63.015384615) < 1e-6, "link %g", m->link_gb_s); /* 32 GT/s, 128 bits of 130, 16 lanes */
    CHECK(m->note[0] == '\0', "note %s", m->note);
}

static void nvml_values(int op_index) {
    (void)op_index;
    library library;
    if (!load(&library)) return;
    use use = use_library(FAKE_NVML_UUID, "none");
    if (OK(use.opened) && OK(use.read)) expect_values(&use);
    use = use_library("GPU-of-another-partition", FAKE_NVML_PCI);
    if (OK(use.opened) && OK(use.read)) expect_values(&use);
    use = use_library("GPU-none", "none");
    FAILS(use.opened, BW_CODE_UNAVAILABLE, "no device has UUID GPU-none or PCI bus id none: Not Found");
    unload(&library);
}

static void nvml_throttle_bits(int op_index) {
    (void)op_index;
    static const struct {
        unsigned long long reasons;
        unsigned throttle;
    } rows[] = {{0x00, 0},
                {0x01, 0},
                {0x02, 0},
                {0x10, 0},
                {0x100, 0},
                {0x04, BW_THROTTLE_POWER_CAP},
                {0x08, BW_THROTTLE_HW_SLOWDOWN},
                {0x20, BW_THROTTLE_SW_THERMAL},
                {0x40, BW_THROTTLE_HW_THERMAL},
                {0x80, BW_THROTTLE_POWER_BRAKE},
                {0x49, BW_THROTTLE_HW_SLOWDOWN | BW_THROTTLE_HW_THERMAL}};
    library library;
    if (!load(&library)) return;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        library.state->reasons = rows[i].reasons;
        use use = use_library(FAKE_NVML_UUID, "none");
        if (OK(use.opened) && OK(use.read)) CHECK_EQUAL(use.conditions.throttle, rows[i].throttle);
    }
    unload(&library);
}

/* How many of the values are not known. Power is counted when it is the mean of the last second. */
static int unknown_values(const use *use) {
    const bw_conditions *c = &use->conditions;
    const bw_management *m = &use->management;
    return !(c->sm_clock_mhz == 1755) + !(c->mem_clock_mhz == 3201) + !(fabs(c->power_w - 412.345) < 1e-9) +
           !(c->temperature_c == 61) + isnan(c->energy_j) + (c->throttle != 0) + (m->driver[0] == '\0') + (m->ecc < 0) +
           (m->persistence < 0) + isnan(m->power_limit_w) + isnan(m->link_gb_s);
}

/* One failure costs at most one value (two, where one function reads two clocks), and is said. */
static void expect_cost(use *use, const char *what, int most) {
    if (use->opened) {
        CHECK_EQUAL(bw_status_code(use->opened), BW_CODE_UNAVAILABLE);
        CHECK(strlen(bw_status_message(use->opened)) > 20, "%s: %s", what, bw_status_message(use->opened));
    } else {
        CHECK(!use->read, "%s ended the reading: %s", what, bw_status_message(use->read));
        int unknown = unknown_values(use);
        CHECK(unknown <= most, "%s cost %d values", what, unknown);
        bool power_found_elsewhere = fabs(use->conditions.power_w - 300.25) < 1e-9;
        CHECK(unknown == 0 || power_found_elsewhere || use->management.note[0] || unknown == 1, "%s: no note", what);
    }
    forget(use);
}

static void nvml_every_loader_call_fails_in_turn(int op_index) {
    (void)op_index;
    library library;
    if (!load(&library)) return;
    int64_t at = 1, refused = 0;
    for (;; at++) {
        char what[32];
        loader_calls = 0;
        loader_fail_at = at;
        snprintf(what, sizeof what, "loader call %d", (int)at);
        use use = use_library(FAKE_NVML_UUID, "none");
        bool reached = loader_calls >= at;
        refused += use.opened != NULL;
        expect_cost(&use, what, 2);
        expect_closed(&library, what);
        if (!reached) break;
    }
    CHECK_EQUAL(at, 20);     /* dlopen, five symbols that are needed, thirteen that are not, then none */
    CHECK_EQUAL(refused, 6); /* the first six */
    unload(&library);
}

static void nvml_every_call_fails_in_turn(int op_index) {
    (void)op_index;
    static const int codes[] = {3, 4, 15, 999};
    library library;
    if (!load(&library)) return;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        int64_t refused = 0;
        for (int64_t at = 1;; at++) {
            *library.state = (fake_nvml_state){.fail_at = at, .fail_code = codes[i], .power_type = 1};
            use use = use_library(FAKE_NVML_UUID, "none");
            refused += use.opened != NULL;
            expect_cost(&use, library.state->failed_call, 1);
            expect_closed(&library, library.state->failed_call);
            if (!library.state->failed) {
                CHECK(at > 17, "only %d calls", (int)at);
                break;
            }
        }
        CHECK_EQUAL(refused, 2); /* nvmlInit_v2, and the handle: nothing has the PCI bus id "none" */
    }
    unload(&library);
}

/* No permission for anything. */
static void nvml_nothing_readable(int op_index) {
    (void)op_index;
    library library;
    if (!load(&library)) return;
    *library.state = (fake_nvml_state){.fail_at = -1, .fail_code = 4, .power_type = 1};
    use use = use_library(FAKE_NVML_UUID, "none");
    OK(use.opened);
    FAILS(use.read, BW_CODE_UNAVAILABLE, "Insufficient Permissions (4)");
    CHECK(isnan(use.conditions.power_w) && use.conditions.throttle == BW_THROTTLE_UNKNOWN, "values from nowhere");
    CHECK(strstr(use.management.note, "ECC mode: Insufficient Permissions; persistence mode"), "note: %s",
          use.management.note);
    CHECK(strstr(use.management.note, "energy: Insufficient"), "note: %s", use.management.note);
    unload(&library);
}

/* A power of a type that we do not know is not taken for a number. */
static void nvml_power_of_another_type(int op_index) {
    (void)op_index;
    library library;
    if (!load(&library)) return;
    library.state->power_type = 0;
    use use = use_library(FAKE_NVML_UUID, "none");
    if (OK(use.opened) && OK(use.read)) CHECK(fabs(use.conditions.power_w - 300.25) < 1e-9, "the mean");
    unload(&library);
}

static void nvml_not_there(int op_index) {
    (void)op_index;
    library library;
    if (!load(&library)) return;
    setenv("BWPROF_TEST_NVML", "/nowhere/libnvidia-ml.so.1", 1);
    use use = use_library(FAKE_NVML_UUID, "none");
    FAILS(use.opened, BW_CODE_UNAVAILABLE, "NVML was not found (looked for: /nowhere/libnvidia-ml.so.1)");
    bw_nvml_close(NULL);
    unload(&library);
}

static void nvml_every_host_allocation_fails_in_turn(int op_index) {
    (void)op_index;
    library library;
    if (!load(&library)) return;
    for (int64_t at = 1;; at++) {
        fake_host_memory(at);
        use use = use_library(FAKE_NVML_UUID, "none");
        bool reached = fake_host_memory(0) >= at;
        if (use.opened) CHECK_EQUAL(bw_status_code(use.opened), BW_CODE_MEMORY);
        CHECK(!!use.opened == reached, "allocation %d: %s", (int)at, bw_status_message(use.opened));
        forget(&use);
        expect_closed(&library, "host memory");
        if (!reached) break;
    }
    unload(&library);
}

const check nvml_checks[] = {
    {"nvml_values", false, nvml_values},
    {"nvml_throttle_bits", false, nvml_throttle_bits},
    {"nvml_every_loader_call_fails_in_turn", false, nvml_every_loader_call_fails_in_turn},
    {"nvml_every_call_fails_in_turn", false, nvml_every_call_fails_in_turn},
    {"nvml_nothing_readable", false, nvml_nothing_readable},
    {"nvml_power_of_another_type", false, nvml_power_of_another_type},
    {"nvml_not_there", false, nvml_not_there},
    {"nvml_every_host_allocation_fails_in_turn", false, nvml_every_host_allocation_fails_in_turn},
    {NULL, false, NULL},
};
