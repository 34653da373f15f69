/* A bundle's file with one report more. What is there already is read as far as that needs: it is JSON, and it is a
 * report, or a list of reports. */
#include <string.h>

#include "api/reports/report.h"

enum { DEEPEST = 64 };

/* What of a report's own names an object has. */
static const char *const names[] = {"operation",  "precision",     "time_ms", "bandwidth_gb_s",
                                    "bytes_read", "bytes_written", "format",  "reports"};
enum { HAS_ALL = 0x3f, HAS_FORMAT = 0x40, HAS_REPORTS = 0x80 };

typedef struct scan {
    const char *at, *end;
} scan;

static bool is_any(const scan *self, const char *letters) {
    return self->at < self->end && *self->at && strchr(letters, *self->at);
}

static void skip_any(scan *self, const char *letters) {
    while (is_any(self, letters)) self->at++;
}

static void skip_space(scan *self) {
    skip_any(self, " \t\r\n");
}

static bool take(scan *self, char letter) {
    skip_space(self);
    if (self->at == self->end || *self->at != letter) return false;
    self->at++;
    return true;
}

static bool take_digits(scan *self) {
    const char *from = self->at;
    skip_any(self, "0123456789");
    return self->at > from;
}

static bool take_number(scan *self) {
    if (is_any(self, "-")) self->at++;
    if (is_any(self, "0")) {
        self->at++;
    } else if (!take_digits(self)) {
        return false;
    }
    if (is_any(self, ".") && (self->at++, !take_digits(self))) return false;
    if (!is_any(self, "eE")) return true;
    self->at++;
    if (is_any(self, "+-")) self->at++;
    return take_digits(self);
}

static bool take_escape(scan *self) {
    if (is_any(self, "\"\\/bfnrt")) return self->at++, true;
    if (!is_any(self, "u")) return false;
    self->at++;
    for (int i = 0; i < 4; i++, self->at++) {
        if (!is_any(self, "0123456789abcdefABCDEF")) return false;
    }
    return true;
}

static bool take_string(scan *self) {
    if (!take(self, '"')) return false;
    while (self->at < self->end && *self->at != '"') {
        uint32_t code;
        int length = bw_text_character(self->at, (size_t)(self->end - self->at), &code);
        if (!length || code < 0x20) return false;
        self->at += length;
        if (code == '\\' && !take_escape(self)) return false;
    }
    return take(self, '"');
}

static bool take_word(scan *self, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(self->end - self->at) < size || memcmp(self->at, word, size) != 0) return false;
    self->at += size;
    return true;
}

static unsigned name_bit(const char *from, const char *to) {
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t size = strlen(names[i]);
        if ((size_t)(to - from) == size + 2 && memcmp(from + 1, names[i], size) == 0) return 1u << i;
    }
    return 0;
}

static bool take_value(scan *self, int depth, unsigned *has);

/* Behind its opening brace. */
static bool take_object(scan *self, int depth, unsigned *has) {
    unsigned unused;
    if (take(self, '}')) return true;
    do {
        skip_space(self);
        const char *from = self->at;
        if (!take_string(self)) return false;
        *has |= name_bit(from, self->at);
        if (!take(self, ':') || !take_value(self, depth + 1, &unused)) return false;
    } while (take(self, ','));
    return take(self, '}');
}

static bool take_list(scan *self, int depth) {
    unsigned unused;
    if (take(self, ']')) return true;
    do {
        if (!take_value(self, depth + 1, &unused)) return false;
    } while (take(self, ','));
    return take(self, ']');
}

/* *has: of an object, which names it has. */
static bool take_value(scan *self, int depth, unsigned *has) {
    *has = 0;
    if (depth > DEEPEST) return false;
    if (take(self, '{')) return take_object(self, depth, has);
    if (take(self, '[')) return take_list(self, depth);
    if (is_any(self, "\"")) return take_string(self);
    return take_word(self, "true") || take_word(self, "false") || take_word(self, "null") || take_number(self);
}

static bool take_report(scan *self, unsigned *has) {
    return take_value(self, 0, has) && (*has & HAS_ALL) == HAS_ALL;
}

static bool is_list(scan self) {
    unsigned has;
    if (!take(&self, '[')) return false;
    do {
        if (!take_report(&self, &has)) return false;
    } while (take(&self, ','));
    return take(&self, ']') && (skip_space(&self), self.at == self.end);
}

static bool is_report(scan self, unsigned *has) {
    return take_report(&self, has) && !(*has & HAS_FORMAT) && (skip_space(&self), self.at == self.end);
}

/* As it is, each of its lines two spaces further in. */
static void add_indented(bw_text *to, const char *from, const char *end) {
    while (from < end) {
        const char *line = memchr(from, '\n', (size_t)(end - from));
        const char *next = line ? line + 1 : end;
        bw_text_add(to, "%.*s%s", (int)(next - from), from, line ? "  " : "");
        from = next;
    }
}

static const char *without_space(const char *from, const char *end) {
    while (end > from && strchr(" \t\r\n", end[-1])) end--;
    return end;
}

bw_status bw_reports_add(bw_text *to, const char *before, size_t size, const bwprof_report *report, const char *path) {
    unsigned has = 0;
    if (!before) {
        bw_report_add(to, report, "");
        bw_text_add(to, "\n");
        return BW_OK;
    }
    scan all = {before, before + size};
    skip_space(&all);
    const char *end = without_space(all.at, all.end);
    if (is_list(all)) {
        end = without_space(all.at, end - 1);
        bw_text_add(to, "%.*s", (int)(end - all.at), all.at);
    } else if (is_report(all, &has)) {
        bw_text_add(to, "[\n  ");
        add_indented(to, all.at, end);
    } else {
        return bw_fail(BW_CODE_INVALID, "%.300s %s: move it away, or take another run_id", path,
                       has & HAS_REPORTS ? "holds a whole run's results" : "is not a proof bundle");
    }
    bw_text_add(to, ",\n  ");
    bw_report_add(to, report, "  ");
    bw_text_add(to, "\n]\n");
    return BW_OK;
}
