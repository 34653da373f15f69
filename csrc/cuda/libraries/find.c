/* Searches for a shared library of NVIDIA and reports where it looked. */
#include "cuda/libraries/find.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIED_SIZE = 1600, REASON_SIZE = 300 };

typedef struct search {
    const bw_library_query *query;
    void *handle;
    char path[PATH_MAX];
    char tried[TRIED_SIZE];   /* folders and names, comma-separated; cut where it gets too long */
    char reason[REASON_SIZE]; /* why a file that is there could not be opened */
} search;

static void note_tried(search *state, const char *text) {
    size_t used = strlen(state->tried);
    if (strstr(state->tried, text)) return;
    if (used + strlen(text) + 3 > sizeof state->tried) return;
    snprintf(state->tried + used, sizeof state->tried - used, "%s%s", used ? ", " : "", text);
}

/* The file that a handle was loaded from, as the loader knows it. */
static void note_path(search *state, const char *fallback) {
    struct link_map *map = NULL;
    const char *name = fallback;
    if (dlinfo(state->handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0]) name = map->l_name;
    snprintf(state->path, sizeof state->path, "%s", name);
}

static bool try_open(search *state, const char *name, int mode) {
    state->handle = dlopen(name, mode);
    if (!state->handle) return false;
    note_path(state, name);
    return true;
}

/* A file that exists but does not open is worth a word: it is usually the reason. */
static bool try_file(search *state, const char *file) {
    if (try_open(state, file, RTLD_NOW | RTLD_LOCAL)) return true;
    const char *why = dlerror();
    if (why && !state->reason[0]) snprintf(state->reason, sizeof state->reason, "%s", why);
    return false;
}

/* `pattern` may hold wildcards: the sonames are looked for in every folder that it names. */
static bool try_folders(search *state, const char *pattern) {
    bool found = false;
    note_tried(state, pattern);
    for (const char *const *soname = state->query->sonames; *soname && !found; soname++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", pattern, *soname) >= (int)sizeof path) continue;
        glob_t matches;
        if (glob(path, GLOB_NOSORT, NULL, &matches) == 0) {
            for (size_t i = 0; i < matches.gl_pathc && !found; i++) found = try_file(state, matches.gl_pathv[i]);
            globfree(&matches);
        }
    }
    return found;
}

static bool try_below(search *state, const char *root, const char *const *folders) {
    char pattern[PATH_MAX];
    for (; folders && *folders; folders++) {
        if (snprintf(pattern, sizeof pattern, "%s/%s", root, *folders) >= (int)sizeof pattern) continue;
        if (try_folders(state, pattern)) return true;
    }
    return false;
}

/* Any version that is loaded under whatever path, a framework's private copy included. */
static int loaded_object(struct dl_phdr_info *info, size_t size, void *data) {
    search *state = data;
    (void)size;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!name || strncmp(name + 1, state->query->stem, strlen(state->query->stem)) != 0) return 0;
    snprintf(state->path, sizeof state->path, "%s", info->dlpi_name);
    return 1;
}

static bool try_loaded(search *state) {
    note_tried(state, "libraries already loaded");
    for (const char *const *soname = state->query->sonames; *soname; soname++) {
        if (try_open(state, *soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return true;
    }
    char path[PATH_MAX];
    if (!dl_iterate_phdr(loaded_object, state)) return false;
    memcpy(path, state->path, sizeof path);
    return try_open(state, path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

/* Folders that packages are installed in, each once. */
typedef struct folders {
    char path[16][512];
    int count;
} folders;

static void add_folder(folders *list, const char *path, size_t length) {
    enum { LIMIT = sizeof list->path / sizeof list->path[0] };
    if (length == 0 || length >= sizeof list->path[0] || list->count == LIMIT) return;
    for (int i = 0; i < list->count; i++) {
        if (strlen(list->path[i]) == length && memcmp(list->path[i], path, length) == 0) return;
    }
    memcpy(list->path[list->count], path, length);
    list->path[list->count++][length] = '\0';
}

static void add_site_packages_of(folders *list, const char *path) {
    static const char *const names[] = {"/site-packages/", "/dist-packages/"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *at = strstr(path, names[i]);
        if (at) add_folder(list, path, (size_t)(at - path) + strlen(names[i]) - 1);
    }
}

/* Extension modules of other packages, and ours, give their site-packages away. */
static int package_object(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    if (info->dlpi_name) add_site_packages_of(data, info->dlpi_name);
    return 0;
}

/* <prefix>/bin/python has its packages in <prefix>/lib/python3.x/site-packages. */
static void add_prefix(folders *list, const char *prefix) {
    char pattern[PATH_MAX];
    glob_t matches;
    int length = snprintf(pattern, sizeof pattern, "%s/lib/python3*/site-packages", prefix);
    if (length < 0 || (size_t)length >= sizeof pattern) return; /* a longer path names no folder */
    if (glob(pattern, 0, NULL, &matches) != 0) return;
    for (size_t i = 0; i < matches.gl_pathc; i++) add_folder(list, matches.gl_pathv[i], strlen(matches.gl_pathv[i]));
    globfree(&matches);
}

static void add_interpreter(folders *list, char *program) {
    for (int levels = 0; levels < 2; levels++) { /* <prefix>/bin/python -> <prefix> */
        char *slash = strrchr(program, '/');
        if (!slash) return;
        *slash = '\0';
    }
    add_prefix(list, program);
}

/* The command as it was typed: a virtual environment's python is a link that /proc/self/exe has followed. */
static void add_command(folders *list) {
    char program[PATH_MAX];
    FILE *file = fopen("/proc/self/cmdline", "r");
    if (!file) return;
    size_t length = fread(program, 1, sizeof program - 1, file);
    fclose(file);
    program[length] = '\0';
    add_interpreter(list, program);
}

static void find_site_packages(folders *list) {
    char program[PATH_MAX];
    dl_iterate_phdr(package_object, list);
    const char *environment = getenv("VIRTUAL_ENV");
    if (environment && environment[0]) add_prefix(list, environment);
    for (const char *entry = getenv("PYTHONPATH"); entry && *entry;) {
        size_t length = strcspn(entry, ":");
        add_folder(list, entry, length);
        entry += length + (entry[length] == ':');
    }
    add_command(list);
    if (realpath("/proc/self/exe", program)) add_interpreter(list, program);
}

static bool try_wheels(search *state) {
    folders list = {.count = 0};
    if (!state->query->wheel_folders) return false;
    find_site_packages(&list);
    for (int i = 0; i < list.count; i++) {
        if (try_below(state, list.path[i], state->query->wheel_folders)) return true;
    }
    return false;
}

static bool try_loader_path(search *state) {
    for (const char *const *soname = state->query->sonames; *soname; soname++) {
        note_tried(state, *soname);
        if (try_open(state, *soname, RTLD_NOW | RTLD_LOCAL)) return true;
    }
    return false;
}

static bool try_toolkit(search *state) {
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *root = getenv(variables[i]);
        if (root && root[0] && try_below(state, root, state->query->toolkit_folders)) return true;
    }
    return try_below(state, "/usr/local/cuda", state->query->toolkit_folders);
}

/* For tests: opens the file that an environment variable names. False where none is named. */
static bool try_named(search *state, bool *found) {
    const char *file = state->query->test_variable ? getenv(state->query->test_variable) : NULL;
    if (!file || !file[0]) return false;
    note_tried(state, file);
    *found = try_file(state, file);
    return true;
}

static bool try_everywhere(search *state) {
    return try_loaded(state) || try_wheels(state) || try_loader_path(state) || try_toolkit(state);
}

bw_status bw_library_open(const bw_library_query *query, void **handle, char *path, size_t path_size) {
    *handle = NULL;
    search *state = calloc(1, sizeof *state);
    if (!state) return bw_fail(BW_CODE_MEMORY, "out of host memory while looking for %s", query->title);
    state->query = query;
    bw_status status = BW_OK;
    bool found = false;
    if (!try_named(state, &found)) found = try_everywhere(state);
    if (found) {
        *handle = state->handle;
        snprintf(path, path_size, "%s", state->path);
    } else {
        status = bw_fail(BW_CODE_UNAVAILABLE, "%s was not found (looked for: %s)%s%s; %s", query->title, state->tried,
                         state->reason[0] ? "; a copy that does not open: " : "", state->reason, query->advice);
    }
    free(state);
    return status;
}

void bw_library_close(void *handle) {
    if (handle) dlclose(handle);
}

bw_status bw_library_symbol(void *handle, const char *path, const char *symbol, void **out) {
    *out = dlsym(handle, symbol);
    if (*out) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "%s has no %s: a newer version of it is needed", path, symbol);
}
