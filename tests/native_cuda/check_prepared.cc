// Prepared launches without a GPU: what a choice of kernels becomes at a launch, and what is asked of the runtime
// before.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/launch/choose.cuh"

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

struct odd {
    char c[3];
};
struct table {
    int64_t rows;
    const int *list;
    float scale;
};

// Never called: only its address and its parameters count.
static void kernel(const float *, float *, const float *, odd, table, int64_t) {
}
static void other(float *) {
}

struct observations {
    size_t allowed;  // dynamic shared memory that the runtime lets the kernel have
    int queries, attributes, launches, entered, cluster, cooperative;
    cudaError_t failure;   // of the next call
    cudaError_t nameless;  // what asking for a name comes to
    const void *function;
    dim3 grid, block;
    size_t shared_bytes;
    const float *in, *addend;
    float *out;
    odd letters;
    table entries;
    int64_t count;
    unsigned char maps[2][BW_TENSOR_MAP_BYTES];
};
static observations seen;

extern "C" cudaError_t bw_cuda_take_injected_fault(bw_cuda_api *) {
    return cudaSuccess;
}
extern "C" bw_status bw_cuda_status(bw_cuda_api *, cudaError_t error, const char *expression, const char *, int) {
    return error == cudaSuccess ? BW_OK : bw_fail(BW_CODE_DEVICE, "%s failed", expression);
}

extern "C" bw_status bw_cuda_enter(bw_device *) {
    seen.entered++;
    return BW_OK;
}

static cudaError_t get_attributes(struct cudaFuncAttributes *out, const void *function) {
    const bool first = function == (const void *)kernel;
    memset(out, 0, sizeof *out);
    out->maxDynamicSharedSizeBytes = (int)seen.allowed;
    out->numRegs = first ? 40 : 16;
    out->sharedSizeBytes = first ? 512 : 0;
    out->localSizeBytes = first ? 24 : 0;
    seen.attributes++;
    return seen.failure;
}

static cudaError_t set_attribute(const void *, enum cudaFuncAttribute attribute, int value) {
    CHECK(attribute == cudaFuncAttributeMaxDynamicSharedMemorySize);
    seen.allowed = (size_t)value;
    seen.queries++;
    return cudaSuccess;
}

// A kernel that needs more shared memory than it may have runs nowhere.
static cudaError_t occupancy(int *out, const void *function, int threads, size_t shared_bytes) {
    if (function == (const void *)other) {
        CHECK(threads == 1 && shared_bytes == 0);
        *out = 32;
        return cudaSuccess;
    }
    CHECK(function == (const void *)kernel && threads == 32 * 4 * 2 && shared_bytes == 100 * 1024);
    *out = shared_bytes <= seen.allowed ? 3 : 0;
    return cudaSuccess;
}

#ifdef BW_CUDA_HAS_FUNCTION_NAMES
static cudaError_t get_name(const char **out, const void *function) {
    *out = function == (const void *)kernel ? "_Z6kernelPKfPf" : "_Z5otherPf";
    return seen.nameless;
}
#endif

static cudaError_t launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                          cudaStream_t) {
    seen.launches++;
    seen.function = function;
    if (function == (const void *)other) {
        memcpy(&seen.out, arguments[0], sizeof seen.out);
        return seen.failure;
    }
    seen.grid = grid;
    seen.block = block;
    seen.shared_bytes = shared_bytes;
    memcpy(&seen.in, arguments[0], sizeof seen.in);
    memcpy(&seen.out, arguments[1], sizeof seen.out);
    memcpy(&seen.addend, arguments[2], sizeof seen.addend);
    memcpy(&seen.letters, arguments[3], sizeof seen.letters);
    memcpy(&seen.entries, arguments[4], sizeof seen.entries);
    memcpy(&seen.count, arguments[5], sizeof seen.count);
    return seen.failure;
}

static cudaError_t launch_with_attributes(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    CHECK(config->numAttrs >= 1 && config->numAttrs <= 2);
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttribute &attribute = config->attrs[i];
        if (attribute.id == cudaLaunchAttributeCooperative) {
            seen.cooperative = attribute.val.cooperative;
            continue;
        }
        CHECK(attribute.id == cudaLaunchAttributeClusterDimension);
        CHECK(attribute.val.clusterDim.x == 1 && attribute.val.clusterDim.z == 1);
        seen.cluster = (int)attribute.val.clusterDim.y;
    }
    return launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream);
}

static cudaError_t last_error() {
    return cudaSuccess;
}

// dims.value: whether there is an addend, KiB of shared memory, whether a second kernel follows, blocks of a cluster,
// whether all blocks are to run at once.
static bw_status choose(const bw_dims *dims, const bw_precision *, const bw_device_facts *, bw_cuda_launch_spec *out) {
    const table entries = {7, nullptr, 0.5f};
    const odd letters = {{'a', 'b', 'c'}};
    if (dims->value[1] < 0) return bw_fail(BW_CODE_UNSUPPORTED, "no kernel");
    bw_cuda_kernel *added =
        bw_choose(out, kernel, dim3(5, 6), dim3(32, 4, 2), (size_t)dims->value[1] * 1024, bw_from_operand(1),
                  bw_from_scratch(64), bw_from_operand_if(dims->value[0] != 0, 2), letters, entries, 11);
    bw_choose_place(added, 4, offsetof(table, list), bw_from_operand(3));
    added->cluster = (int)dims->value[3];
    added->cooperative = dims->value[4] != 0;
    if (dims->value[2]) bw_choose(out, other, dim3(1), dim3(1), 0, bw_from_operand(0));
    return BW_OK;
}

static bw_device *toy() {
    static bw_device device;
    memset(&device, 0, sizeof device);
    seen = observations();
    seen.allowed = 48 * 1024;
    device.api.get_function_attributes = get_attributes;
    device.api.set_function_attribute = set_attribute;
#ifdef BW_CUDA_HAS_FUNCTION_NAMES
    device.api.get_function_name = get_name;
#endif
    device.api.occupancy = occupancy;
    device.api.launch_kernel = launch;
    device.api.launch_with_attributes = launch_with_attributes;
    device.api.last_error = last_error;
    return &device;
}

static char memory[2][5][256];  // of each set: four operands and the scratch

static bw_launch make_launch(bw_device *device, const bw_dims *dims, int set) {
    bw_launch made = {};
    made.dims = dims;
    made.device = device;
    made.set = set;
    for (int i = 0; i < 4; i++) made.operand[i] = memory[set][i];
    made.scratch = memory[set][4];
    return made;
}

static void check_addresses() {
    bw_device *device = toy();
    for (int addend = 0; addend < 2; addend++) {
        bw_dims dims = {};
        void *state = nullptr;
        dims.value[0] = addend;
        bw_launch sets[2] = {make_launch(device, &dims, 0), make_launch(device, &dims, 1)};
        CHECK(!bw_cuda_prepare(sets, 2, choose, &state));
        for (int set = 0; set < 2; set++) {
            sets[set].state = state;
            CHECK(!bw_cuda_prepared_launch(&sets[set]));
            CHECK((const char *)seen.in == memory[set][1] && (char *)seen.out == memory[set][4] + 64);
            CHECK((const char *)seen.addend == (addend ? memory[set][2] : nullptr));
            CHECK((const char *)seen.entries.list == memory[set][3]);
            CHECK(seen.entries.rows == 7 && seen.entries.scale == 0.5f && seen.count == 11);
            CHECK(!memcmp(seen.letters.c, "abc", 3));
            CHECK(seen.grid.x == 5 && seen.grid.y == 6 && seen.grid.z == 1);
            CHECK(seen.block.x == 32 && seen.block.y == 4 && seen.block.z == 2 && seen.shared_bytes == 0);
        }
        bw_cuda_prepared_release(state);
    }
    CHECK(seen.launches == 4 && seen.attributes == 0);
}

static void check_kernels_in_order() {
    bw_device *device = toy();
    bw_dims dims = {};
    void *state = nullptr;
    dims.value[2] = 1;
    bw_launch set = make_launch(device, &dims, 1);
    CHECK(!bw_cuda_prepare(&set, 1, choose, &state));
    set.state = state;
    CHECK(!bw_cuda_prepared_launch(&set));
    CHECK(seen.launches == 2 && seen.function == (const void *)other && (char *)seen.out == memory[1][0]);
    seen.failure = cudaErrorInvalidValue;
    bw_status status = bw_cuda_prepared_launch(&set);
    CHECK(bw_status_code(status) == BW_CODE_DEVICE && seen.launches == 3);
    bw_status_free(status);
    bw_cuda_prepared_release(state);
}

// A cooperative launch says so, in a cluster or not; others do not.
static void check_cooperative() {
    for (int cluster : {0, 6}) {
        for (int cooperative : {0, 1}) {
            bw_device *device = toy();
            bw_dims dims = {};
            void *state = nullptr;
            dims.value[3] = cluster;
            dims.value[4] = cooperative;
            bw_launch set = make_launch(device, &dims, 0);
            CHECK(!bw_cuda_prepare(&set, 1, choose, &state));
            set.state = state;
            CHECK(!bw_cuda_prepared_launch(&set));
            CHECK(seen.cooperative == cooperative && seen.cluster == cluster && seen.launches == 1);
            CHECK((const char *)seen.in == memory[0][1] && seen.count == 11);
            bw_cuda_prepared_release(state);
        }
    }
}

// Clusters lie along y; the kernels beside them have none.
static void check_clusters() {
    bw_device *device = toy();
    bw_dims dims = {};
    void *state = nullptr;
    dims.value[1] = 100;
    dims.value[2] = 1;
    dims.value[3] = 6;
    bw_launch set = make_launch(device, &dims, 0);
    CHECK(!bw_cuda_prepare(&set, 1, choose, &state));
    set.state = state;
    CHECK(!bw_cuda_prepared_launch(&set));
    CHECK(seen.cluster == 6 && seen.launches == 2 && seen.function == (const void *)other);
    CHECK(seen.grid.x == 5 && seen.grid.y == 6 && seen.block.y == 4 && seen.shared_bytes == 100 * 1024);
    CHECK((const char *)seen.in == memory[0][1] && seen.count == 11);
    seen.cluster = 0;
    seen.failure = cudaErrorInvalidValue;
    bw_status status = bw_cuda_prepared_launch(&set);
    CHECK(bw_status_code(status) == BW_CODE_DEVICE && seen.cluster == 6 && seen.launches == 3);
    bw_status_free(status);
    bw_cuda_prepared_release(state);
}

// A launch asks for nothing, and a case that needs less takes nothing from one that needs more.
static void check_shared_memory() {
    bw_device *device = toy();
    const int kib[] = {40, 100, 60};
    for (int needed : kib) {
        bw_dims dims = {};
        void *state = nullptr;
        dims.value[1] = needed;
        bw_launch set = make_launch(device, &dims, 0);
        CHECK(!bw_cuda_prepare(&set, 1, choose, &state));
        CHECK(seen.allowed == (size_t)(needed == 40 ? 48 : 100) * 1024);
        CHECK(seen.attributes == (needed == 40 ? 0 : needed == 100 ? 1 : 2));
        set.state = state;
        CHECK(!bw_cuda_prepared_launch(&set) && seen.shared_bytes == (size_t)needed * 1024);
        if (needed == 100) {
            int resident = 0;
            CHECK(!bw_cuda_resident_blocks(device, &((const bw_cuda_launch_spec *)state)->kernel[0], &resident));
            CHECK(resident == 3);
        }
        bw_cuda_prepared_release(state);
    }
    CHECK(seen.queries == 1 && seen.attributes == 2);
}

static void check_failures() {
    bw_device *device = toy();
    bw_dims dims = {};
    void *state = &dims;
    bw_launch set = make_launch(device, &dims, 0);
    dims.value[1] = -1;
    bw_status status = bw_cuda_prepare(&set, 1, choose, &state);
    CHECK(bw_status_code(status) == BW_CODE_UNSUPPORTED);
    bw_status_free(status);
    dims.value[1] = 100;
    seen.failure = cudaErrorInvalidValue;
    status = bw_cuda_prepare(&set, 1, choose, &state);
    CHECK(bw_status_code(status) == BW_CODE_DEVICE && seen.queries == 0);
    bw_status_free(status);
    CHECK(state == &dims);
}

// What is told of a launch is what is launched: the block, the shared memory asked for; and nothing runs.
static void check_description() {
    bw_device *device = toy();
    bw_dims dims = {};
    bw_kernels found = {};
    dims.value[1] = 100;
    dims.value[2] = 1;
    CHECK(!bw_cuda_describe(device, &dims, nullptr, choose, &found));
    const bw_kernel *first = &found.kernel[0], *second = &found.kernel[1];
    CHECK(found.count == 2 && seen.entered == 1 && seen.launches == 0 && seen.queries == 1);
    CHECK(first->registers == 40 && first->local_bytes == 24 && first->static_shared_bytes == 512);
    CHECK(first->dynamic_shared_bytes == 100 * 1024 && first->threads == 256 && first->blocks == 30);
    CHECK(first->resident_blocks == 3);
    CHECK(second->registers == 16 && second->local_bytes == 0 && second->threads == 1 && second->blocks == 1);
    CHECK(second->resident_blocks == 32 && second->dynamic_shared_bytes == 0);
#ifdef BW_CUDA_HAS_FUNCTION_NAMES
    CHECK(!strcmp(first->symbol, "_Z6kernelPKfPf") && !strcmp(second->symbol, "_Z5otherPf"));
#else
    CHECK(!first->symbol && !second->symbol);
#endif
}

// A driver without the call for names costs the names alone; what is wrong with the device is said.
static void check_undescribed() {
    bw_device *device = toy();
    bw_dims dims = {};
    bw_kernels found = {};
    dims.value[1] = 100;
    seen.nameless = cudaErrorCallRequiresNewerDriver;
    CHECK(!bw_cuda_describe(device, &dims, nullptr, choose, &found));
    CHECK(found.count == 1 && !found.kernel[0].symbol && found.kernel[0].registers == 40);
    found.count = 0;
#ifdef BW_CUDA_HAS_FUNCTION_NAMES
    seen.nameless = cudaErrorIllegalAddress;
    bw_status lost = bw_cuda_describe(device, &dims, nullptr, choose, &found);
    CHECK(bw_status_code(lost) == BW_CODE_DEVICE && found.count == 0);
    bw_status_free(lost);
#endif
    seen.failure = cudaErrorInvalidValue;
    bw_status status = bw_cuda_describe(device, &dims, nullptr, choose, &found);
    CHECK(bw_status_code(status) == BW_CODE_DEVICE && found.count == 0);
    bw_status_free(status);
    dims.value[1] = -1;
    status = bw_cuda_describe(device, &dims, nullptr, choose, &found);
    CHECK(bw_status_code(status) == BW_CODE_UNSUPPORTED && found.count == 0);
    bw_status_free(status);
}

// ---- tensor maps ----

struct alignas(64) map {
    unsigned char bytes[BW_TENSOR_MAP_BYTES];
};

static void mapped(float, map, map) {
}

// The driver's function, as far as it is looked at: a map here is its address, and the first extent.
static int encode(map *out, int, unsigned rank, void *address, const uint64_t *extent, const uint64_t *stride,
                  const unsigned *box, const unsigned *step, int, int, int, int) {
    CHECK(rank == 2 && extent[1] == 3 && stride[0] == 32 && box[0] == 64 && step[0] == 1 && step[1] == 1);
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, &address, sizeof address);
    memcpy(out->bytes + 8, &extent[0], sizeof extent[0]);
    return seen.failure ? 1 : 0;
}

extern "C" void bw_cuda_driver_function(const char *name, void *out) {
    CHECK(!strcmp(name, "cuTensorMapEncodeTiled"));
    void *found = seen.nameless ? nullptr : (void *)encode;
    memcpy(out, &found, sizeof found);
}

static cudaError_t launch_mapped(const void *function, dim3, dim3, void **arguments, size_t, cudaStream_t) {
    CHECK(function == (const void *)mapped);
    for (int i = 0; i < 2; i++) memcpy(seen.maps[i], arguments[1 + i], sizeof seen.maps[i]);
    return cudaSuccess;
}

static bw_tensor_view view_of(int operand, int64_t columns) {
    bw_tensor_view view = {};
    view.operand = operand;
    view.dtype = BW_FP16;
    view.rank = 2;
    view.extent[0] = columns;
    view.extent[1] = 3;
    view.stride[1] = 32;
    view.box[0] = 64;
    view.box[1] = 3;
    return view;
}

static bw_status choose_mapped(const bw_dims *dims, const bw_precision *, const bw_device_facts *,
                               bw_cuda_launch_spec *out) {
    // Of two kernels' maps each launch gets its own.
    for (int i = 0; i <= dims->value[0]; i++) {
        bw_choose(out, mapped, dim3(1), dim3(1), 0, 0.5f, view_of(2 * i, 16), view_of(2 * i + 1, 8));
    }
    return BW_OK;
}

static void check_maps() {
    bw_device *device = toy();
    bw_dims dims = {};
    void *state = nullptr;
    device->api.launch_kernel = launch_mapped;
    bw_launch sets[2] = {make_launch(device, &dims, 0), make_launch(device, &dims, 1)};
    for (int kernels = 1; kernels <= 2; kernels++) {
        dims.value[0] = kernels - 1;
        CHECK(!bw_cuda_prepare(sets, 2, choose_mapped, &state));
        for (int set = 1; set >= 0; set--) {
            sets[set].state = state;
            CHECK(!bw_cuda_prepared_launch(&sets[set]));
            for (int i = 0; i < 2; i++) {
                const void *wanted = memory[set][2 * kernels - 2 + i];
                CHECK(!memcmp(seen.maps[i], &wanted, sizeof wanted) && seen.maps[i][8] == (i == 0 ? 16 : 8));
            }
        }
        bw_cuda_prepared_release(state);
    }
    seen.nameless = cudaErrorSymbolNotFound;
    bw_status status = bw_cuda_prepare(sets, 2, choose_mapped, &state);
    CHECK(bw_status_code(status) == BW_CODE_UNAVAILABLE);
    bw_status_free(status);
    seen.nameless = cudaSuccess;
    seen.failure = cudaErrorInvalidValue;
    status = bw_cuda_prepare(sets, 2, choose_mapped, &state);
    CHECK(bw_status_code(status) == BW_CODE_DEVICE);
    bw_status_free(status);
}

static void check_views() {
    bw_tensor_view view = view_of(0, 16);
    CHECK(!bw_tensor_view_refuses(&view));
    view.stride[1] = 40;
    CHECK(strstr(bw_tensor_view_refuses(&view), "16 bytes"));
    view.stride[1] = (int64_t)1 << 40;
    CHECK(strstr(bw_tensor_view_refuses(&view), "2^40"));
    view.stride[1] -= 16;
    CHECK(!bw_tensor_view_refuses(&view));
    view.extent[0] = (int64_t)1 << 31;
    CHECK(strstr(bw_tensor_view_refuses(&view), "2^31"));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*check)();
    } checks[] = {
        {"addresses", check_addresses},
        {"kernels_in_order", check_kernels_in_order},
        {"clusters", check_clusters},
        {"cooperative", check_cooperative},
        {"shared_memory", check_shared_memory},
        {"failures", check_failures},
        {"description", check_description},
        {"undescribed", check_undescribed},
        {"maps", check_maps},
        {"views", check_views},
    };
    for (const auto &row : checks) {
        if (argc == 2 && !strcmp(argv[1], row.name)) return row.check(), 0;
    }
    return 2;
}
