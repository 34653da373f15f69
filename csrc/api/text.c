/* Texts for files and terminals: numbers do not depend on the locale, and names are escaped. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

enum { DIGITS_LEAST = 15, DIGITS_MOST = 17, NUMBER_SIZE = 352 };

void bw_text_free(bw_text *self) {
    free(self->bytes);
    *self = (bw_text){0};
}

static bool make_room(bw_text *self, size_t more) {
    if (self->failed) return false;
    if (self->size + more < self->capacity) return true;
    size_t capacity = 2 * (self->size + more) + 64;
    char *larger = realloc(self->bytes, capacity);
    self->failed = !larger;
    if (!larger) return false;
    self->bytes = larger;
    self->capacity = capacity;
    return true;
}

static void add_bytes(bw_text *self, const char *bytes, size_t size) {
    if (!make_room(self, size)) return;
    memcpy(self->bytes + self->size, bytes, size);
    self->size += size;
    self->bytes[self->size] = '\0';
}

void bw_text_add(bw_text *self, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0 || !make_room(self, (size_t)length)) return;
    va_start(arguments, format);
    vsnprintf(self->bytes + self->size, (size_t)length + 1, format, arguments);
    va_end(arguments);
    self->size += (size_t)length;
}

void bw_text_number(bw_text *self, double value, int decimals, const char *absent) {
    char written[NUMBER_SIZE];
    if (isnan(value)) {
        add_bytes(self, absent, strlen(absent));
        return;
    }
    if (decimals >= 0) snprintf(written, sizeof written, "%.*f", decimals, value);
    for (int digits = DIGITS_LEAST; decimals < 0 && digits <= DIGITS_MOST; digits++) {
        snprintf(written, sizeof written, "%.*g", digits, value);
        if (strtod(written, NULL) == value) break;
    }
    bool in_point = false; /* which may be of several bytes */
    for (const char *at = written; *at; at++) {
        bool part = strchr("0123456789+-eEinf", *at) != NULL;
        if (part || !in_point) add_bytes(self, part ? at : ".", 1);
        in_point = !part;
    }
}

/* The length of the UTF-8 character here; 0 where there is none, or one that a file should not hold. */
static int character_at(const unsigned char *at) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int length = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
    uint32_t code = length == 1 ? at[0] : at[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if (at[i] >> 6 != 2) return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool control = code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
    bool refused = control || code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
    return refused ? 0 : length;
}

void bw_text_name(bw_text *self, const char *name, bw_form form) {
    const char *after = name + strspn(name, "'"), *escape = form == BW_JSON ? "\\" : "\"";
    const bool formula = form == BW_CSV && *after && strchr("=+-@\t", *after);
    const bool quoted = form == BW_JSON || (form == BW_CSV && strpbrk(name, ",\""));
    if (quoted) add_bytes(self, "\"", 1);
    if (formula) add_bytes(self, "'", 1);
    for (const unsigned char *at = (const unsigned char *)name; *at;) {
        int length = character_at(at);
        if (quoted && (*at == '"' || *at == *escape)) add_bytes(self, escape, 1);
        if (length) {
            add_bytes(self, (const char *)at, (size_t)length);
        } else {
            bw_text_add(self, form != BW_JSON ? "\\x%02x" : *at < 0x80 ? "\\u%04x" : "\\\\x%02x", *at);
        }
        at += length ? length : 1;
    }
    if (quoted) add_bytes(self, "\"", 1);
}

/* Whether the value comes next. */
static bool begin_value(bw_row *self, const char *name) {
    if (self->begun) bw_text_add(self->to, "%s", self->form == BW_JSON ? self->between : ",");
    self->begun = true;
    if (self->form == BW_HEADER) bw_text_add(self->to, "%s", name);
    if (self->form == BW_JSON) bw_text_add(self->to, "\"%s\": ", name);
    return self->form != BW_HEADER;
}

static const char *absent_in(const bw_row *self) {
    return self->form == BW_JSON ? "null" : "";
}

void bw_row_text(bw_row *self, const char *name, const char *value) {
    if (begin_value(self, name)) bw_text_name(self->to, value, self->form);
}

void bw_row_number(bw_row *self, const char *name, double value) {
    if (begin_value(self, name)) bw_text_number(self->to, value, -1, absent_in(self));
}

void bw_row_whole(bw_row *self, const char *name, bool known, uint64_t value) {
    if (!begin_value(self, name)) return;
    if (known) bw_text_add(self->to, "%llu", (unsigned long long)value);
    if (!known) bw_text_add(self->to, "%s", absent_in(self));
}

void bw_row_truth(bw_row *self, const char *name, bool known, bool value) {
    bw_row_text(self, name, !known ? "" : value ? "True" : "False");
}
