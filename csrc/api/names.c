/* A hash table from names to the numbers that they get in the order of their first use. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/memory.h"

enum { NAMES_AT_FIRST = 32 };

/* Eight bytes at a time: a template's name has hundreds of letters, and finding it is part of its range. */
uint64_t bw_names_hash(const char *name) {
    size_t left = strnlen(name, BWPROF_NAME_MOST + 1);
    uint64_t hash = left;
    while (left) {
        uint64_t word = 0;
        if (left >= sizeof word) {
            memcpy(&word, name, sizeof word); /* of a fixed size: no call */
        } else {
            memcpy(&word, name, left);
        }
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash = hash << 32 | hash >> 32; /* products carry upwards only */
        name += sizeof word;
        left -= left < sizeof word ? left : sizeof word;
    }
    return hash ^ hash >> 24 ^ hash >> 12; /* a slot is of the lowest bits: the last letters of a word are above them */
}

void bw_names_free(bw_names *self) {
    for (int64_t i = 0; i < self->count; i++) free(self->name[i]);
    free(self->name);
    free(self->slots);
    *self = (bw_names){0};
}

bw_status bw_name_check(const char *name) {
    BW_TRY(bw_api_need(name, "name"));
    size_t size = strnlen(name, BWPROF_NAME_MOST + 1);
    if (size == 0) return bw_fail(BW_CODE_INVALID, "name is empty");
    if (size <= BWPROF_NAME_MOST) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "name '%.40s...' is too long: allowed are %d bytes", name, BWPROF_NAME_MOST);
}

static int64_t slot_of(const bw_names *self, const char *name) {
    int64_t mask = self->slot_count - 1, at = (int64_t)(bw_names_hash(name) & (uint64_t)mask);
    while (self->slots[at] && strcmp(self->name[self->slots[at] - 1], name) != 0) at = (at + 1) & mask;
    return at;
}

int64_t bw_names_find(const bw_names *self, const char *name) {
    if (!name || !self->count) return -1;
    return (int64_t)self->slots[slot_of(self, name)] - 1;
}

/* Half of the slots are free. */
static bw_status grow(bw_names *self) {
    int64_t capacity = self->capacity ? 2 * self->capacity : NAMES_AT_FIRST;
    BW_TRY(bw_resize((void **)&self->name, capacity, sizeof *self->name, "names"));
    int32_t *slots = calloc(2 * (size_t)capacity, sizeof *slots);
    if (!slots) return bw_fail(BW_CODE_MEMORY, "no host memory for %lld names", (long long)capacity);
    free(self->slots);
    self->slots = slots;
    self->capacity = capacity;
    self->slot_count = 2 * capacity;
    for (int64_t i = 0; i < self->count; i++) self->slots[slot_of(self, self->name[i])] = (int32_t)i + 1;
    return BW_OK;
}

bw_status bw_names_add(bw_names *self, const char *name, int64_t *out) {
    *out = bw_names_find(self, name);
    if (*out >= 0) return BW_OK;
    BW_TRY(bw_name_check(name));
    if (self->count == BWPROF_NAMES_MOST) {
        return bw_fail(BW_CODE_MEMORY, "range '%.100s' would be one name more than the %d there may be", name,
                       BWPROF_NAMES_MOST);
    }
    if (self->count == self->capacity) BW_TRY(grow(self));
    char *copy = strdup(name);
    if (!copy) return bw_fail(BW_CODE_MEMORY, "no host memory for a name");
    self->name[self->count] = copy;
    self->slots[slot_of(self, name)] = (int32_t)self->count + 1;
    *out = self->count++;
    return BW_OK;
}

bw_status bw_names_add_row(bw_names *self, const char *name, void **rows, size_t row_size, int64_t *out) {
    int64_t before = self->count;
    BW_TRY(bw_names_add(self, name, out));
    if (self->count == before) return BW_OK;
    bw_status status = bw_resize(rows, self->capacity, row_size, "rows of names");
    if (status) {
        bw_names_take_back(self);
    } else {
        memset((char *)*rows + (size_t)before * row_size, 0, row_size);
    }
    return status;
}

void bw_names_take_back(bw_names *self) {
    int64_t last = --self->count;
    self->slots[slot_of(self, self->name[last])] = 0; /* no other name was put behind it */
    free(self->name[last]);
}
