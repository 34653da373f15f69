/* Searches for names; the message of a failed search lists what is allowed. */
#include "base/names.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *bw_name_of_text(const void *list, int index) {
    const char *const *texts = list;
    return texts ? texts[index] : NULL;
}

int bw_name_find(const char *name, bw_name_at name_at, const void *list, char *allowed, size_t allowed_size) {
    const char *known;
    size_t used = 0;
    if (allowed_size) allowed[0] = '\0';
    for (int i = 0; (known = name_at(list, i)) != NULL; i++) {
        if (!known[0]) continue;
        if (strcmp(known, name) == 0) return i;
        if (used >= allowed_size) continue;
        /* The last names are an ellipsis where there may be no room for them. */
        const bool fits = used + strlen(known) + sizeof ", , ..." <= allowed_size;
        int more = snprintf(allowed + used, allowed_size - used, "%s%s", used ? ", " : "", fits ? known : "...");
        used = fits && more > 0 ? used + (size_t)more : allowed_size;
    }
    return -1;
}
