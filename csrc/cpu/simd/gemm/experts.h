/* moe_gemm: gemm's product of some rows of A, gathered, with one expert's weights. A part of gemm.c, whose variants it
 * calls. */
#pragma once

typedef struct expert_product {
    bw_dims dims; /* gemm's */
    bw_launch launch;
    const bw_launch *all;
    const int32_t *rows, *offsets;
    int64_t experts, row_bytes; /* of A */
} expert_product;

static int64_t activation_row_bytes(const bw_dims *dims, const bw_precision *precision) {
    return bw_dtype_bytes(precision->activation, dims->value[BW_MOE_K]);
}

static expert_product expert_product_of(const bw_launch *all) {
    const int64_t *v = all->dims->value;
    return (expert_product){.dims = {.value = {[BW_GEMM_N] = v[BW_MOE_N], [BW_GEMM_K] = v[BW_MOE_K]}},
                            .launch = *all,
                            .all = all,
                            .rows = all->operand[BW_MOE_ROWS],
                            .offsets = all->operand[BW_MOE_OFFSETS],
                            .experts = v[BW_MOE_EXPERTS],
                            .row_bytes = activation_row_bytes(all->dims, all->precision)};
}

/* Operand `index`, a matrix with a row of `columns` elements for each row of B, from the expert's on. */
static void set_expert(expert_product *self, int index, bw_dtype dtype, int64_t columns, int64_t expert) {
    const int64_t bytes = expert * self->dims.value[BW_GEMM_N] * bw_dtype_bytes(dtype, columns);
    if (self->all->operand[index]) self->launch.operand[index] = (char *)self->all->operand[index] + bytes;
}

/* Operand `index`, which has `bytes` for each row of A: those of `count` rows of D from `first` on go to `gathered`.
 * One row stays where it is. */
static void gather_rows(expert_product *self, int index, int64_t bytes, int64_t first, int64_t count, char *gathered) {
    char *from = self->all->operand[index];
    self->launch.operand[index] = count == 1 ? from + self->rows[first] * bytes : gathered;
    for (int64_t i = 0; count > 1 && i < count; i++) {
        memcpy(gathered + i * bytes, from + self->rows[first + i] * bytes, (size_t)bytes);
    }
}

/* What `rows` gathered rows of A take, scales behind them. */
static int64_t gathered_bytes(const bw_dims *dims, const bw_precision *precision, int64_t rows) {
    return bw_round_up(rows * activation_row_bytes(dims, precision), 64) +
           bw_round_up(rows * (int64_t)sizeof(float), 64);
}

/* Makes it the product of `count` rows of D, which are the expert's, from `first` on. */
static product take_rows(expert_product *self, int64_t expert, int64_t first, int64_t count, char *gathered) {
    const bw_precision *precision = self->all->precision;
    const bw_scaling *scaling = precision->weight_scales, *a_scaling = precision->activation_scales;
    const int64_t k = self->dims.value[BW_GEMM_K], groups = scaling->columns ? bw_ceil_div(k, scaling->columns) : 1;
    self->dims.value[BW_GEMM_M] = count;
    self->launch.dims = &self->dims;
    gather_rows(self, BW_GEMM_A, self->row_bytes, first, count, gathered);
    if (a_scaling->rows) {
        const int64_t columns = a_scaling->columns ? bw_ceil_div(k, a_scaling->columns) : 1;
        gather_rows(self, BW_GEMM_A_SCALE, bw_dtype_bytes(a_scaling->type, columns), first, count,
                    gathered + bw_round_up(count * self->row_bytes, 64));
    }
    set_expert(self, BW_GEMM_B, precision->weight, k, expert);
    if (scaling->rows == 1) {
        set_expert(self, BW_GEMM_B_SCALE, scaling->type, groups, expert);
        set_expert(self, BW_GEMM_B_ZERO, scaling->zero, groups, expert);
    }
    char *d = self->all->operand[BW_GEMM_D];
    const int64_t d_bytes = bw_dtype_bytes(precision->result, self->dims.value[BW_GEMM_N]);
    self->launch.operand[BW_GEMM_D] = d + first * d_bytes;
    product p = product_of(&self->launch);
    p.row0 = scaling->rows == 1 ? 0 : expert * p.n;
    return p;
}

static void moe_naive_share(void *context, int rank, int ranks) {
    expert_product self = expert_product_of(context);
    for (int64_t expert = 0; expert < self.experts; expert++) {
        for (int64_t row = self.offsets[expert]; row < self.offsets[expert + 1]; row++) {
            const product p = take_rows(&self, expert, row, 1, NULL);
            int64_t first, last;
            bw_pool_share(p.n, rank, ranks, &first, &last);
            naive_elements(&p, first, last);
        }
    }
}

static bw_status moe_naive_launch(const bw_launch *launch) {
    bw_pool_run(launch->device->pool, moe_naive_share, (void *)launch);
    return BW_OK;
}

/* A thread's workspace: what gemv takes, and rows of A. */
static int64_t moe_gemv_room(const bw_dims *dims, const bw_precision *precision) {
    return gathered_bytes(dims, precision, GEMV_ROWS_MAX) / 4 +
           gemv_room(precision, GEMV_ROWS_MAX, dims->value[BW_MOE_K]);
}

static int64_t moe_gemv_workspace(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return 4 * facts->units * moe_gemv_room(dims, precision);
}

static void moe_gemv_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    const bw_precision *precision = launch->precision;
    expert_product self = expert_product_of(launch);
    float *room = (float *)launch->workspace + rank * moe_gemv_room(launch->dims, precision);
    char *gathered = (char *)(room + gemv_room(precision, GEMV_ROWS_MAX, self.dims.value[BW_GEMM_K]));
    int64_t first, last;
    bw_pool_share(self.dims.value[BW_GEMM_N], rank, ranks, &first, &last);
    for (int64_t expert = 0; expert < self.experts; expert++) {
        const int64_t end = self.offsets[expert + 1];
        for (int64_t row = self.offsets[expert]; row < end; row += GEMV_ROWS_MAX) {
            const product p = take_rows(&self, expert, row, bw_min64(GEMV_ROWS_MAX, end - row), gathered);
            gemv_columns(&p, room, first, last);
        }
    }
}

static bw_status moe_gemv_launch(const bw_launch *launch) {
    bw_pool_run(launch->device->pool, moe_gemv_share, (void *)launch);
    return BW_OK;
}

/* Most experts have no more rows than gemv keeps in registers. */
static bool moe_gemv_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)facts;
    const int64_t *v = dims->value;
    return v[BW_MOE_TOKENS] * v[BW_MOE_TOP_K] <= GEMV_ROWS_MAX * v[BW_MOE_ACTIVE] && precision->activation != BW_INT8;
}

/* A variant of gemm, for one expert after another: rows of A lie behind its workspace. */
static int64_t whole_workspace(const bw_dims *dims, const bw_precision *precision, int64_t of_gemm) {
    return of_gemm + gathered_bytes(dims, precision, dims->value[BW_MOE_TOKENS] * dims->value[BW_MOE_TOP_K]);
}

static bw_status launch_by_expert(const bw_launch *launch, int64_t room_bytes,
                                  bw_status (*of_gemm)(const bw_launch *)) {
    expert_product self = expert_product_of(launch);
    char *gathered = (char *)launch->workspace + bw_pool_size(launch->device->pool) * room_bytes;
    for (int64_t expert = 0; expert < self.experts; expert++) {
        const int64_t first = self.offsets[expert], count = self.offsets[expert + 1] - first;
        if (count < 1) continue;
        take_rows(&self, expert, first, count, gathered);
        BW_TRY(of_gemm(&self.launch));
    }
    return BW_OK;
}

#define MOE_BY_EXPERT(name, room)                                                             \
    static int64_t moe_##name##_workspace(const bw_dims *dims, const bw_precision *precision, \
                                          const bw_device_facts *facts) {                     \
        return whole_workspace(dims, precision, facts->units * (int64_t)sizeof(room));        \
    }                                                                                         \
    static bw_status moe_##name##_launch(const bw_launch *launch) {                           \
        return launch_by_expert(launch, (int64_t)sizeof(room), name##_launch);                \
    }
MOE_BY_EXPERT(blocked, blocked_room)
MOE_BY_EXPERT(words, bytes_room)
MOE_BY_EXPERT(bytes, bytes_room)

static bw_dims expert_dims(const bw_dims *dims) {
    return (bw_dims){.value = {[BW_GEMM_N] = dims->value[BW_MOE_N], [BW_GEMM_K] = dims->value[BW_MOE_K]}};
}

static const char *moe_words_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const bw_dims of_gemm = expert_dims(dims);
    return words_refuses(&of_gemm, precision, facts);
}

static const char *moe_bytes_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const bw_dims of_gemm = expert_dims(dims);
    return bytes_refuses(&of_gemm, precision, facts);
}

static const char moe_bytes_at[] = "int8 tokens=64 experts=8 top_k=2 N=1024 K=1024";

static const bw_variant moe_rows[] = {
    {.name = "naive",
     .text = "one dot product per output element",
     .prediction = {.changes = "the baseline: one dot product per output element"},
     .precisions = BW_WEIGHT_PRECISIONS & ~BW_MASK(TF32),
     .rounds_once = true,
     .launch = moe_naive_launch},
    {.name = "gemv",
     .text = "an expert's weights are read once for up to 8 of its tokens",
     .precisions = BW_CPU_PRECISIONS | BW_NARROW_WEIGHT_PRECISIONS | BW_CPU_BYTES,
     .rounds_once = true,
     .launch = moe_gemv_launch,
     .prediction = {.changes = "rows of an expert's weights are read once for up to 8 of its tokens, several side by "
                               "side",
                    .predicted = 3.0,
                    .because =
                        "four tokens an expert read B once instead of four times, from memory that is the limit"},
     .prefers = moe_gemv_prefers,
     .workspace_bytes = moe_gemv_workspace},
    BW_CPU_ROW_IN(BW_CPU_PRECISIONS | BW_CPU_BYTES, "blocked", moe_blocked,
                  .text = "gemm's panels and tiles, one expert after another",
                  .prediction = {.changes = "an expert's tokens gathered, then gemm's panels and tiles",
                                 .predicted = 3.0,
                                 .because = "many tokens an expert: 14 loads for 24 products instead of 9 for 8",
                                 .at = "fp32 tokens=512 experts=8 top_k=2 N=512 K=512"},
                  .workspace_bytes = moe_blocked_workspace),
    {.name = "words",
     .text = "gemm's INT8 as 16-bit words, one expert after another",
     .precisions = BW_MASK(INT8),
     .rounds_once = true,
     .launch = moe_words_launch,
     .prediction = {.changes = "whole numbers of 16 bits instead of floats, nothing is packed",
                    .predicted = 1.5,
                    .because = "as in gemm: 32 products in two instructions instead of 16 in one",
                    .at = moe_bytes_at},
     .refuses = moe_words_refuses,
     .workspace_bytes = moe_words_workspace},
    {.name = "bytes",
     .text = "gemm's INT8 as bytes, one expert after another (AVX-512 VNNI)",
     .precisions = BW_MASK(INT8),
     .rounds_once = true,
     .launch = moe_bytes_launch,
     .prediction = {.changes = "products of bytes are added as they are made",
                    .predicted = 2.0,
                    .because = "2.5 in gemm of as many rows, less what gathering tokens and starting for each expert "
                               "take",
                    .at = moe_bytes_at},
     .refuses = moe_bytes_refuses,
     .workspace_bytes = moe_bytes_workspace},
};

const bw_variant_table BW_CPU_TABLE(moe_gemm) = {moe_rows, sizeof moe_rows / sizeof moe_rows[0],
                                                 "fp32 tokens=16 experts=8 top_k=2 N=1024 K=1024"};
