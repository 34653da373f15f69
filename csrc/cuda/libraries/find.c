/* Searches for a shared library of NVIDIA and reports where it looked. */
#include "cuda/libraries/find.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIED_SIZE = 1600, REASON_SIZE = 300, FOLDERS_MOST = 16, FOLDER_SIZE = 512 };

typedef struct search {
    const bw_library_query *query;
    bw_library *out;
    char packages[FOLDERS_MOST]
                 [FOLDER_SIZE]; /* folders that packages are installed in, or patterns of such, each once */
    int package_folders;
    char loaded[PATH_MAX];
    char tried[TRIED_SIZE];   /* folders and names, comma-separated; cut where it gets too long */
    char reason[REASON_SIZE]; /* why a file that is there could not be opened */
} search;

static void note_tried(search *self, const char *text) {
    size_t used = strlen(self->tried);
    if (strstr(self->tried, text)) return;
    if (used + strlen(text) + 3 > sizeof self->tried) return;
    snprintf(self->tried + used, sizeof self->tried - used, "%s%s", used ? ", " : "", text);
}

/* Its path is the file that it was loaded from, as the loader knows it. */
static bool try_open(search *self, const char *name, int more_flags) {
    struct link_map *map = NULL;
    self->out->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | more_flags);
    if (!self->out->handle) return false;
    const bool is_known = dlinfo(self->out->handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0];
    snprintf(self->out->path, sizeof self->out->path, "%.*s", (int)sizeof self->out->path - 1,
             is_known ? map->l_name : name);
    return true;
}

/* A file that exists but does not open is worth a word: it is usually the reason. */
static bool try_file(search *self, const char *file) {
    if (try_open(self, file, 0)) return true;
    const char *why = dlerror();
    if (why && !self->reason[0]) snprintf(self->reason, sizeof self->reason, "%s", why);
    return false;
}

static bool try_pattern(search *self, const char *folder, const char *soname) {
    char pattern[PATH_MAX];
    glob_t matches;
    bool found = false;
    if (snprintf(pattern, sizeof pattern, "%s/%s", folder, soname) >= (int)sizeof pattern) return false;
    if (glob(pattern, GLOB_NOSORT, NULL, &matches) != 0) return false;
    for (size_t i = 0; i < matches.gl_pathc && !found; i++) found = try_file(self, matches.gl_pathv[i]);
    globfree(&matches);
    return found;
}

/* Root and folders may hold wildcards: the sonames are looked for in every folder that they name. */
static bool try_below(search *self, const char *root, const char *const *folders) {
    char pattern[PATH_MAX];
    for (; folders && *folders; folders++) {
        if (snprintf(pattern, sizeof pattern, "%s/%s", root, *folders) >= (int)sizeof pattern) continue;
        note_tried(self, pattern);
        for (const char *const *soname = self->query->sonames; *soname; soname++) {
            if (try_pattern(self, pattern, *soname)) return true;
        }
    }
    return false;
}

/* Any version that is loaded under whatever path, a framework's private copy included. */
static int loaded_object(struct dl_phdr_info *info, size_t size, void *data) {
    search *self = data;
    (void)size;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!name || strncmp(name + 1, self->query->stem, strlen(self->query->stem)) != 0) return 0;
    snprintf(self->loaded, sizeof self->loaded, "%s", info->dlpi_name);
    return 1;
}

static bool try_loaded(search *self) {
    note_tried(self, "libraries already loaded");
    for (const char *const *soname = self->query->sonames; *soname; soname++) {
        if (try_open(self, *soname, RTLD_NOLOAD)) return true;
    }
    return dl_iterate_phdr(loaded_object, self) && try_open(self, self->loaded, RTLD_NOLOAD);
}

static void add_folder(search *self, const char *path, size_t length, const char *below) {
    char folder[FOLDER_SIZE];
    if (length == 0 || self->package_folders == FOLDERS_MOST) return;
    if (snprintf(folder, sizeof folder, "%.*s%s", (int)length, path, below) >= (int)sizeof folder) return;
    for (int i = 0; i < self->package_folders; i++) {
        if (strcmp(self->packages[i], folder) == 0) return;
    }
    memcpy(self->packages[self->package_folders++], folder, sizeof folder);
}

/* Extension modules of other packages, and ours, give their site-packages away. */
static int package_object(struct dl_phdr_info *info, size_t size, void *data) {
    static const char *const names[] = {"/site-packages/", "/dist-packages/"};
    (void)size;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *at = info->dlpi_name ? strstr(info->dlpi_name, names[i]) : NULL;
        if (at) add_folder(data, info->dlpi_name, (size_t)(at - info->dlpi_name) + strlen(names[i]) - 1, "");
    }
    return 0;
}

static void add_prefix(search *self, const char *prefix, size_t length) {
    add_folder(self, prefix, length, "/lib/python3*/site-packages");
}

/* <prefix>/bin/python has its packages below <prefix>. */
static void add_interpreter(search *self, const char *program) {
    const char *name = strrchr(program, '/');
    const char *folder = name ? memrchr(program, '/', (size_t)(name - program)) : NULL;
    if (folder) add_prefix(self, program, (size_t)(folder - program));
}

static bool try_wheels(search *self) {
    char program[PATH_MAX];
    if (!self->query->wheel_folders) return false;
    dl_iterate_phdr(package_object, self);
    const char *environment = getenv("VIRTUAL_ENV");
    if (environment) add_prefix(self, environment, strlen(environment));
    for (const char *entry = getenv("PYTHONPATH"); entry && *entry;) {
        size_t length = strcspn(entry, ":");
        add_folder(self, entry, length, "");
        entry += length + (entry[length] == ':');
    }
    /* As it was typed: a virtual environment's python is a link, which /proc/self/exe has followed. */
    add_interpreter(self, program_invocation_name);
    if (realpath("/proc/self/exe", program)) add_interpreter(self, program);
    for (int i = 0; i < self->package_folders; i++) {
        if (try_below(self, self->packages[i], self->query->wheel_folders)) return true;
    }
    return false;
}

static bool try_loader_path(search *self) {
    for (const char *const *soname = self->query->sonames; *soname; soname++) {
        note_tried(self, *soname);
        if (try_open(self, *soname, 0)) return true;
    }
    return false;
}

static bool try_toolkit(search *self) {
    const char *const roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        if (roots[i] && roots[i][0] && try_below(self, roots[i], self->query->toolkit_folders)) return true;
    }
    return false;
}

static bool try_everywhere(search *self) {
    const char *named = self->query->test_variable ? getenv(self->query->test_variable) : NULL;
    if (named && named[0]) {
        note_tried(self, named);
        return try_file(self, named);
    }
    return try_loaded(self) || try_wheels(self) || try_loader_path(self) || try_toolkit(self);
}

bw_status bw_library_open(const bw_library_query *query, bw_library *out) {
    *out = (bw_library){NULL, ""};
    search *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory while looking for %s", query->title);
    self->query = query;
    self->out = out;
    bw_status status = BW_OK;
    if (!try_everywhere(self)) {
        status = bw_fail(BW_CODE_UNAVAILABLE, "%s was not found (looked for: %s)%s%s; %s", query->title, self->tried,
                         self->reason[0] ? "; a copy that does not open: " : "", self->reason, query->advice);
    }
    free(self);
    return status;
}

void bw_library_close(bw_library *library) {
    if (library->handle) dlclose(library->handle);
    library->handle = NULL;
}

bw_status bw_library_symbol(const bw_library *library, const char *name, void *out) {
    void *found = dlsym(library->handle, name);
    memcpy(out, &found, sizeof found);
    if (found) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "%s has no %s: a newer version of it is needed", library->path, name);
}
