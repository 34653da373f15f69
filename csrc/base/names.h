/* Finds things by name. The message of a failed search lists names. */
#pragma once

#include <stddef.h>

/* The name of item `index` of `list`; NULL behind the last one, "" of one that is not to be had. */
typedef const char *(*bw_name_at)(const void *list, int index);

/* The item of this name; else -1, and `allowed` (of allowed_size, 0: not wanted) has all names: "graph, events",
 * or the first ones: "graph, ...". */
int bw_name_find(const char *name, bw_name_at name_at, const void *list, char *allowed, size_t allowed_size);

/* name_at of a list of strings that NULL ends; a NULL list is an empty one. */
const char *bw_name_of_text(const void *list, int index);
