/* The vtable's marks: points in time on a stream. */
#ifndef BW_CUDA_MARKS_H
#define BW_CUDA_MARKS_H

#include "backend/backend.h"

bw_status bw_cuda_marks_create(bw_device *device, void *stream, bw_marks **out);
bw_status bw_cuda_marks_reserve(bw_marks *marks, int64_t count);
bw_status bw_cuda_mark(bw_marks *marks, int64_t index);
bw_status bw_cuda_mark_passed(bw_marks *marks, int64_t index, bool *out);
bw_status bw_cuda_marks_elapsed(bw_marks *marks, int64_t from, int64_t to, double *ns);
void bw_cuda_marks_free(bw_marks *marks);

#endif
