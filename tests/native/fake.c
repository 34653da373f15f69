#include "fake.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types/input.h"

fake_state fake;

void fake_reset(void) {
    fake_forget();
    fake = (fake_state){.memory_bytes = (int64_t)1 << 30,
                        .cache_bytes = 1 << 12,
                        .fixed_replay = true,
                        .seed = 7,
                        .rows = 1,
                        .launch_ns = 1e6,
                        .marks_passed = -1,
                        .reference_ns = 1e6,
                        .disturbance = {.slowed = NAN},
                        .conditions = {NAN, NAN, NAN, NAN, NAN, BW_THROTTLE_UNKNOWN}};
}

bw_status fake_called(const char *name) {
    if (++fake.calls != fake.fail_at) return BW_OK;
    fake.failed = true;
    strncpy(fake.failed_call, name, sizeof fake.failed_call - 1);
    return bw_fail(fake.fail_code, "planned failure of call %lld, %s", (long long)fake.calls, name);
}

/* ---- device and memory ---- */

struct bw_device {
    bw_device_facts facts;
};

static bw_status device_count(int *count, char *reason, size_t reason_size) {
    (void)reason, (void)reason_size;
    *count = 1;
    return fake_called("device_count");
}

static bw_status device_name(int index, char *name, size_t name_size) {
    (void)index;
    strncpy(name, "toy", name_size);
    return fake_called("device_name");
}

static bw_status device_open(int index, bw_device **out) {
    (void)index;
    BW_TRY(fake_called("device_open"));
    fake.current = 0;
    bw_device *device = calloc(1, sizeof *device);
    if (!device) return bw_fail(BW_CODE_MEMORY, "no memory for a device");
    device->facts.cache_bytes = fake.cache_bytes;
    device->facts.fixed_replay = fake.fixed_replay;
    device->facts.memory_bytes = fake.memory_bytes;
    strcpy(device->facts.timer, "toy");
    fake.live_devices++;
    *out = device;
    return BW_OK;
}

static void device_close(bw_device *device) {
    fake.live_devices--;
    fake.current = 0;
    free(device);
}

static const bw_device_facts *device_facts(const bw_device *device) {
    return &device->facts;
}

static bw_status limit_threads(bw_device *device, int threads) {
    (void)device, (void)threads;
    return fake_called("limit_threads");
}

static bw_status device_memory(bw_device *device, int64_t *free_bytes, int64_t *total_bytes) {
    (void)device;
    *free_bytes = fake.memory_bytes - fake.live_bytes;
    *total_bytes = fake.memory_bytes;
    return fake_called("device_memory");
}

static bw_status allocate(bw_device *device, int64_t bytes, void **out) {
    (void)device;
    BW_TRY(fake_called("allocate"));
    fake.current = 0;
    if (bytes > fake.memory_bytes - fake.live_bytes) {
        fake.refused_allocations++;
        return bw_fail(BW_CODE_MEMORY, "the device has no %lld bytes", (long long)bytes);
    }
    void *memory = aligned_alloc(256, ((size_t)bytes + 255) / 256 * 256);
    if (!memory) return bw_fail(BW_CODE_MEMORY, "no host memory for %lld bytes", (long long)bytes);
    fake.live_allocations++;
    fake.live_bytes += bytes;
    *out = memory;
    return BW_OK;
}

/* A release with another size than the allocation's shows as live_bytes that do not come back to 0. */
static void release(bw_device *device, void *memory, int64_t bytes) {
    (void)device;
    fake.live_allocations--;
    fake.live_bytes -= bytes;
    free(memory);
}

/* Memory of the host, of which there is enough. */
static bw_status allocate_host(bw_device *device, int64_t bytes, bool pageable, void **out) {
    (void)device, (void)pageable;
    BW_TRY(fake_called("allocate_host"));
    *out = aligned_alloc(256, (size_t)bytes);
    if (!*out) return bw_fail(BW_CODE_MEMORY, "no host memory for %lld bytes", (long long)bytes);
    fake.live_allocations++;
    return BW_OK;
}

static void release_host(bw_device *device, void *memory, bool pageable) {
    (void)device, (void)pageable;
    fake.live_allocations--;
    free(memory);
}

static bw_status fill(bw_device *device, bw_dtype dtype, uint64_t seed, int operand, int64_t count, void *out) {
    (void)device;
    BW_TRY(fake_called("fill"));
    bw_input_fill(dtype, bw_input_key_make(seed, operand), 0, count, out);
    return BW_OK;
}

static bw_status poison(bw_device *device, void *memory, int64_t bytes) {
    (void)device;
    BW_TRY(fake_called("poison"));
    memset(memory, 0xff, (size_t)bytes);
    return BW_OK;
}

static bw_status copy(bw_device *device, void *to, const void *from, int64_t bytes) {
    (void)device;
    BW_TRY(fake_called("copy"));
    memcpy(to, from, (size_t)bytes);
    return BW_OK;
}

static bw_status gather(bw_device *device, const bw_span *spans, int64_t count, int64_t bytes, void *to) {
    (void)device, (void)bytes;
    BW_TRY(fake_called("gather"));
    char *next = to;
    for (int64_t i = 0; i < count; i++) {
        memcpy(next, spans[i].from, (size_t)spans[i].bytes);
        next += spans[i].bytes;
    }
    return BW_OK;
}

static bw_status synchronize(bw_device *device) {
    (void)device;
    return fake_called("synchronize");
}

/* ---- the kernel ---- */

/* The outputs that a right launch writes, worked out once per case: rows as stored bits. */
typedef struct image {
    const bw_op *op;
    bw_dims dims;
    const bw_precision *precision;
    uint64_t seed;
    int64_t count;
    bw_reference_row *rows;
    char **bits;
    int64_t *start, *bytes; /* of each row in its operand: every launch writes them all */
} image;

static image outputs;

void fake_forget(void) {
    for (int64_t i = 0; outputs.bits && i < outputs.count; i++) free(outputs.bits[i]);
    free(outputs.bits);
    free(outputs.start);
    free(outputs.bytes);
    free(outputs.rows);
    memset(&outputs, 0, sizeof outputs);
}

static void encode(bw_dtype dtype, const double *values, int64_t count, void *out) {
    for (int64_t i = 0; i < count; i++) {
        char *to = (char *)out + bw_dtype_bytes(dtype, i);
        float narrow = (float)values[i];
        int32_t integer = (int32_t)values[i];
        if (dtype == BW_I32) {
            memcpy(to, &integer, sizeof integer);
        } else {
            bw_status_free(bw_dtype_encode(dtype, &narrow, 1, to));
        }
    }
}

static bool same_case(const bw_launch *launch) {
    return outputs.op == bw_op_at(fake.op_index) && outputs.precision == launch->precision &&
           outputs.seed == fake.seed && memcmp(outputs.dims.value, launch->dims->value, sizeof outputs.dims.value) == 0;
}

static bw_status prepare_image(const bw_launch *launch, const bw_operand *operands) {
    if (same_case(launch)) return BW_OK;
    fake_forget();
    const bw_op *op = bw_op_at(fake.op_index);
    bw_rows rows = op->rows(launch->dims, launch->precision);
    /* Rows past the focus, where there is one, are those that no launch may touch. */
    int64_t count = rows.focus ? rows.focus : rows.count;
    double *values = malloc((size_t)rows.elems * sizeof *values);
    outputs.rows = calloc((size_t)count, sizeof *outputs.rows);
    outputs.bits = calloc((size_t)count, sizeof *outputs.bits);
    outputs.start = calloc((size_t)count, sizeof *outputs.start);
    outputs.bytes = calloc((size_t)count, sizeof *outputs.bytes);
    outputs.count = count;
    bw_status status = BW_OK;
    if (!values || !outputs.rows || !outputs.bits || !outputs.start || !outputs.bytes) {
        BW_GOTO(bw_fail(BW_CODE_MEMORY, "no memory for the outputs"));
    }
    for (int64_t i = 0; i < count; i++) {
        bw_reference_row *row = &outputs.rows[i];
        row->values = values;
        BW_GOTO(op->reference(launch->dims, launch->precision, fake.seed, i, row));
        bw_dtype dtype = operands[row->operand].dtype;
        outputs.start[i] = bw_dtype_bytes(dtype, row->offset);
        outputs.bytes[i] = bw_dtype_bytes(dtype, row->count);
        outputs.bits[i] = malloc((size_t)outputs.bytes[i]);
        if (!outputs.bits[i]) BW_GOTO(bw_fail(BW_CODE_MEMORY, "no memory for the outputs"));
        encode(dtype, values, row->count, outputs.bits[i]);
        row->values = NULL;
    }
    outputs.op = op;
    outputs.precision = launch->precision;
    outputs.seed = fake.seed;
    outputs.dims = *launch->dims;
cleanup:
    free(values);
    if (status) fake_forget();
    return status;
}

static void corrupt(const bw_launch *launch, const bw_operand *operands) {
    const bw_op *op = bw_op_at(fake.op_index);
    bw_rows rows = op->rows(launch->dims, launch->precision);
    double *values = calloc((size_t)rows.elems, sizeof *values);
    bw_reference_row row = {.values = values};
    if (!values || op->reference(launch->dims, launch->precision, fake.seed, fake.plant_row, &row)) abort();
    bw_dtype dtype = operands[row.operand].dtype;
    double tolerance = op->tolerance(launch->dims, launch->precision, false).element;
    double value = row.values[fake.plant_element];
    char *place = (char *)launch->operand[row.operand] + bw_dtype_bytes(dtype, row.offset + fake.plant_element);
    if (fake.plant == FAKE_NAN) {
        memset(place, 0xff, (size_t)bw_dtype_bytes(dtype, 1));
    } else if (tolerance == 0.0) {
        *place ^= 1; /* the last bit of a value that must be equal */
    } else {
        /* A result's own rounding must not undo it. */
        value += 4.0 * tolerance * fmax(fabs(value), row.scale) + 3.0 * bw_dtype_half_unit(dtype, value);
        encode(dtype, &value, 1, place);
    }
    free(values);
}

static void write_rows(const bw_launch *launch, bool shifted) {
    for (int64_t i = 0; i < outputs.count; i++) {
        int64_t from = shifted ? (i + 1) % outputs.count : i;
        memcpy((char *)launch->operand[outputs.rows[i].operand] + outputs.start[i], outputs.bits[from],
               (size_t)bw_min64(outputs.bytes[i], outputs.bytes[from]));
    }
}

/* Every set must hold the generated inputs: a launch on a set that does not is an error of whoever filled it. */
static bw_status check_inputs(const bw_launch *launch, const bw_operand *operands, int count) {
    for (int i = 0; i < count; i++) {
        const bw_operand *operand = &operands[i];
        if (!operand->present && !launch->operand[i]) continue;
        if (!launch->operand[i] || (uintptr_t)launch->operand[i] % 256) {
            return bw_fail(BW_CODE_DEVICE, "operand %s is not aligned", operand->name);
        }
        if (operand->role != BW_IN) continue;
        char *wanted = malloc((size_t)operand->bytes);
        if (!wanted) return bw_fail(BW_CODE_MEMORY, "no memory to check %s", operand->name);
        bw_operand_fill(bw_op_at(fake.op_index), launch->dims, fake.seed, operand, i, wanted);
        bool same = memcmp(wanted, launch->operand[i], (size_t)operand->bytes) == 0;
        free(wanted);
        if (!same) return bw_fail(BW_CODE_DEVICE, "this set's %s is not the generated one", operand->name);
    }
    return BW_OK;
}

static bool in_replay, on_last_set;

static bw_status launch_row(int row, const bw_launch *launch) {
    BW_TRY(fake_called("launch"));
    fake.launches++;
    const bw_op *op = bw_op_at(fake.op_index);
    bw_operand operands[BW_MAX_OPERANDS];
    int count;
    BW_TRY(bw_op_operands(op, launch->dims, launch->precision, operands, &count));
    if (!in_replay) BW_TRY(check_inputs(launch, operands, count));
    if ((fake.scratch[row] > 0) != (launch->scratch != NULL) || (fake.workspace[row] > 0) != !!launch->workspace) {
        return bw_fail(BW_CODE_DEVICE, "scratch or workspace is not what the variant asked for");
    }
    if (launch->scratch) memset(launch->scratch, 1, (size_t)fake.scratch[row]);
    if (launch->workspace) memset(launch->workspace, 1, (size_t)fake.workspace[row]);
    BW_TRY(prepare_image(launch, operands));
    bool now = fake.plant != FAKE_RIGHT && (fake.when == FAKE_ALWAYS || (fake.when == FAKE_IN_REPLAYS && in_replay) ||
                                            (fake.when == FAKE_ON_LAST_SET && on_last_set));
    if (now && fake.plant == FAKE_NOTHING) return BW_OK;
    write_rows(launch, now && fake.plant == FAKE_SHIFTED);
    if (now && (fake.plant == FAKE_WRONG_ELEMENT || fake.plant == FAKE_NAN)) corrupt(launch, operands);
    return BW_OK;
}

/* ---- variants ---- */

static bw_status prepare_row(int row, const bw_launch *sets, int64_t set_count, void **state) {
    int present = 0, count; /* an operand that every set has, on the device */
    bw_operand operands[BW_MAX_OPERANDS];
    BW_TRY(bw_op_operands(bw_op_at(fake.op_index), sets[0].dims, sets[0].precision, operands, &count));
    while (!sets[0].operand[present] || operands[present].on_host) present++;
    BW_TRY(fake_called("prepare"));
    for (int64_t i = 1; i < set_count; i++) {
        if (sets[i].set != i) return bw_fail(BW_CODE_DEVICE, "set %d says that it is %d", (int)i, (int)sets[i].set);
        if ((char *)sets[i].scratch - (char *)sets[0].scratch !=
            (sets[0].scratch ? (char *)sets[i].operand[present] - (char *)sets[0].operand[present] : 0)) {
            return bw_fail(BW_CODE_DEVICE, "set %d has another one's scratch", (int)i);
        }
        if (sets[i].once != sets[0].once) return bw_fail(BW_CODE_DEVICE, "sets 0 and %d differ in `once`", (int)i);
    }
    if (fake.missing[row]) return bw_fail(BW_CODE_UNAVAILABLE, "library %d is not installed", row);
    *state = malloc(1);
    if (!*state) return bw_fail(BW_CODE_MEMORY, "no memory for a variant's state");
    fake.live_states++;
    fake.prepared[row]++;
    if (fake.found_scratch) fake.scratch[row] = fake.found_scratch;
    fake.prepared_once += sets[0].once;
    return BW_OK;
}

static bw_status transform_row(const bw_launch *launch) {
    BW_TRY(fake_called("transform"));
    fake.transforms++;
    if (launch->set == 0) memcpy(&fake.transformed, launch->operand[0], sizeof fake.transformed);
    return BW_OK;
}

static void release_state(void *state) {
    fake.live_states--;
    free(state);
}

#define ROW_FUNCTIONS(row)                                                                                             \
    static const char *refuses_##row(const bw_dims *dims, const bw_precision *precision,                               \
                                     const bw_device_facts *facts) {                                                   \
        (void)dims, (void)precision, (void)facts;                                                                      \
        return fake.refusing[row] ? "this row refuses everything" : NULL;                                              \
    }                                                                                                                  \
    static bool prefers_##row(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {      \
        (void)dims, (void)precision, (void)facts;                                                                      \
        return fake.preferring[row];                                                                                   \
    }                                                                                                                  \
    static int64_t scratch_##row(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {   \
        (void)dims, (void)precision, (void)facts;                                                                      \
        return fake.scratch[row];                                                                                      \
    }                                                                                                                  \
    static int64_t largest_##row(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {   \
        (void)dims, (void)precision, (void)facts;                                                                      \
        return bw_max64(fake.scratch[row], fake.largest_scratch);                                                      \
    }                                                                                                                  \
    static int64_t workspace_##row(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) { \
        (void)dims, (void)precision, (void)facts;                                                                      \
        if (fake.meanwhile) fake.meanwhile();                                                                          \
        return fake.workspace[row];                                                                                    \
    }                                                                                                                  \
    static bw_status extra_##row(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,     \
                                 bw_cost *cost) {                                                                      \
        (void)dims, (void)precision, (void)facts;                                                                      \
        if (fake.meanwhile) fake.meanwhile();                                                                          \
        cost->algorithmic_bytes_read += fake.scratch[row];                                                             \
        return BW_OK;                                                                                                  \
    }                                                                                                                  \
    static bw_status prepare_##row(const bw_launch *sets, int64_t set_count, void **state) {                           \
        return prepare_row(row, sets, set_count, state);                                                               \
    }                                                                                                                  \
    static bw_status launch_##row(const bw_launch *launch) {                                                           \
        return launch_row(row, launch);                                                                                \
    }
ROW_FUNCTIONS(0)
ROW_FUNCTIONS(1)
ROW_FUNCTIONS(2)

#define ROW(row, title)                                                                                       \
    {                                                                                                         \
        .name = title, .text = title, .precisions = ~0u, .rounds_once = (row) != 1, .refuses = refuses_##row, \
        .prefers = prefers_##row, .scratch_bytes = scratch_##row, .largest_scratch_bytes = largest_##row,     \
        .workspace_bytes = workspace_##row, .extra_cost = extra_##row, .prepare = prepare_##row,              \
        .release = release_state, .transform = (row) == 1 ? transform_row : NULL, .launch = launch_##row      \
    }
static const bw_variant variant_rows[FAKE_ROWS] = {ROW(0, "plain"), ROW(1, "middle"), ROW(2, "library")};

static const bw_variant_table *variants(const bw_device *device, int op_index) {
    static const bw_variant_table tables[FAKE_ROWS + 1] = {
        {variant_rows, 0, NULL}, {variant_rows, 1, NULL}, {variant_rows, 2, NULL}, {variant_rows, 3, NULL}};
    (void)device;
    fake.op_index = op_index;
    return &tables[fake.rows];
}

/* ---- plans and the toy clock ---- */

struct bw_plan {
    bw_device *device;
    bw_plan_spec spec;
    int64_t next; /* where the rotation stands; a fixed replay starts over */
    void *flush;
};

static bw_status run_empty(void *context, int64_t set, bool captured) {
    (void)context, (void)set, (void)captured;
    return BW_OK;
}

static bw_work empty_work(bw_device *device) {
    return (bw_work){.run = run_empty, .context = device};
}

static bool is_empty(const bw_plan_spec *spec) {
    return spec->work.run == run_empty;
}

static void plan_free(bw_plan *plan) {
    if (!plan) return;
    if (plan->flush) release(plan->device, plan->flush, plan->spec.flush_bytes);
    free(plan);
    fake.live_plans--;
    fake.current = 0;
}

static bw_status plan_create(bw_device *device, const bw_plan_spec *spec, bw_plan **out) {
    BW_TRY(fake_called("plan_create"));
    fake.current = 0;
    bw_status status = BW_OK;
    bw_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return bw_fail(BW_CODE_MEMORY, "no memory for a plan");
    fake.live_plans++;
    plan->device = device;
    plan->spec = *spec;
    if (spec->flush_bytes) BW_GOTO(allocate(device, spec->flush_bytes, &plan->flush));
    for (int64_t i = 0; fake.launches_at_create && !spec->work.foreign && i < spec->set_count; i++) {
        on_last_set = i == spec->set_count - 1;
        status = bw_plan_spec_launch(spec, i, true);
        on_last_set = false;
        if (status) goto cleanup;
    }
    if (!is_empty(spec)) {
        fake.last_plan = *spec;
        fake.plans++;
    }
    *out = plan;
    return BW_OK;
cleanup:
    plan_free(plan);
    return status;
}

static double launch_time(int64_t replay) {
    static uint32_t noise = 1;
    noise = noise * 1664525u + 1013904223u;
    switch (fake.clock) {
        case FAKE_NOISY: return fake.launch_ns * (1.0 + fake.amplitude * ((double)noise / 2147483648.0 - 1.0));
        case FAKE_DRIFTING: return fake.launch_ns * (1.0 + fake.amplitude * (double)replay);
        case FAKE_SLOW_START: return fake.launch_ns * (replay < 10 ? fake.amplitude : 1.0);
        case FAKE_CUSTOM: return fake.custom_time(fake.custom_context, replay);
        case FAKE_QUIET: break;
    }
    return fake.launch_ns;
}

static bw_status replay_launches(bw_plan *plan) {
    const bw_plan_spec *spec = &plan->spec;
    if (spec->launches < 1 || spec->set_count < 1) return bw_fail(BW_CODE_DEVICE, "a plan of nothing");
    if (plan->device->facts.fixed_replay) plan->next = 0;
    for (int64_t i = 0; i < spec->launches; i++) {
        on_last_set = plan->next == spec->set_count - 1;
        bw_work_enter(&spec->work);
        bw_status status = bw_plan_spec_launch(spec, fake.plant == FAKE_SET_ZERO ? 0 : plan->next, false);
        bw_work_leave(&spec->work);
        if (status) return status;
        plan->next = (plan->next + 1) % spec->set_count;
    }
    return BW_OK;
}

static bw_status plan_run(bw_plan *plan, double *ns) {
    BW_TRY(fake_called("plan_run"));
    in_replay = true;
    fake_annotate_replay(plan->spec.annotation_stack);
    bw_status status = replay_launches(plan);
    in_replay = on_last_set = false;
    if (status) return status;
    *ns = (double)plan->spec.launches * (is_empty(&plan->spec) ? 500.0 : launch_time(fake.replays++));
    fake.last_replay_ns = *ns;
    fake.now_ns += (int64_t)*ns;
    return BW_OK;
}

static bool plan_late(const bw_plan *plan) {
    return plan && fake.late_from && fake.replays >= fake.late_from;
}

static double plan_busy_ns(const bw_device *device) {
    (void)device;
    return fake.busy_ns;
}

static double plan_host_ns(const bw_plan *plan) {
    return plan ? 1234.0 : 0.0;
}

static bw_status conditions(bw_device *device, bool with_energy, bw_conditions *out) {
    (void)device;
    fake.readings++;
    fake.energy_readings += with_energy;
    if (fake.sensors_fail) return bw_fail(BW_CODE_UNAVAILABLE, "no permission to read the sensors");
    *out = fake.conditions;
    if (!with_energy) out->energy_j = NAN;
    return BW_OK;
}

static void look_at_disturbance(bw_device *device, bw_disturbance *out) {
    (void)device;
    *out = fake.disturbance;
}

static bw_status reference(bw_device *device, double *ns) {
    (void)device;
    if (fake.reference_ns == 0.0) return bw_fail(BW_CODE_MEMORY, "no memory for a reference stream");
    bool slow = ++fake.references >= fake.slow_from && fake.references <= fake.slow_to;
    *ns = fake.reference_ns * (slow ? fake.slow_by : 1.0);
    fake.now_ns += (int64_t)*ns;
    return BW_OK;
}

static const bw_device_calls device_calls = {.count = device_count,
                                             .name = device_name,
                                             .open = device_open,
                                             .close = device_close,
                                             .facts = device_facts,
                                             .synchronize = synchronize,
                                             .variants = variants,
                                             .limit_threads = limit_threads};
static const bw_memory_calls memory_calls = {device_memory, allocate, NULL, release, allocate_host, release_host,
                                             fill,          poison,   copy, copy,    copy,          gather};
static const bw_plan_calls plan_calls = {empty_work, plan_create, plan_run,  plan_host_ns,
                                         plan_free,  NULL,        plan_late, plan_busy_ns};
static const bw_sensor_calls sensor_calls = {.read = conditions};
static const bw_disturbance_calls disturbance_calls = {look_at_disturbance, reference};

#define FAKE_BACKEND                                                                                    \
    .name = "toy", .text = "host memory and a toy clock", .built = true, .devices = &device_calls,      \
    .memory = &memory_calls, .plans = &plan_calls, .marks = &fake_mark_calls, .sensors = &sensor_calls, \
    .disturbance = &disturbance_calls, .context = &fake_context_calls, .annotations = &fake_annotation_calls

const bw_backend fake_backend = {FAKE_BACKEND};
const bw_backend fake_host_backend = {FAKE_BACKEND, .runs_on_host = true};

/* ---- the list of backends, for who looks one up ---- */

int bw_backend_count(void) {
    return 1;
}

const bw_backend *bw_backend_at(int index) {
    return index == 0 ? &fake_backend : NULL;
}

bw_status bw_backend_find(const char *name, const bw_backend **out) {
    *out = &fake_backend;
    if (strcmp(name, fake_backend.name) == 0) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "unknown backend '%.200s': allowed is %s", name, fake_backend.name);
}
