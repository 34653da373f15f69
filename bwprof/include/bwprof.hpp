// bwprof in C++: what bwprof.h has, released by itself. Header only, C++11.
//
//   { bwprof::Range r{"gemm", stream}; launch_gemm(stream); }
//   bwprof::profiler().print_report(stdout);
#ifndef BWPROF_HPP
#define BWPROF_HPP

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>

#include "bwprof.h"

namespace bwprof {

// What a function of bwprof.h answered, and bwprof_last_error().
class Error : public std::runtime_error {
  public:
    explicit Error(bwprof_status status) : std::runtime_error(bwprof_last_error()), status_(status) {
    }
    bwprof_status status() const noexcept {
        return status_;
    }

  private:
    bwprof_status status_;
};

inline void check(bwprof_status status) {
    if (status != BWPROF_OK) throw Error(status);
}

// A profiler of one's own; its functions throw Error. NaN stands for a number that is not known (yet).
class Profiler {
  public:
    explicit Profiler(const char *backend = nullptr, int device = 0) {
        check(bwprof_profiler_create(backend, device, &handle_));
    }
    explicit Profiler(std::nullptr_t, std::nothrow_t) noexcept {
        bwprof_profiler_create(nullptr, 0, &handle_);  // none: ranges do nothing
    }
    Profiler(Profiler &&other) noexcept : handle_(other.handle_) {
        other.handle_ = nullptr;
    }
    Profiler &operator=(Profiler &&other) noexcept {
        if (this != &other) {
            bwprof_profiler_destroy(handle_);
            handle_ = other.handle_;
            other.handle_ = nullptr;
        }
        return *this;
    }
    Profiler(const Profiler &) = delete;
    Profiler &operator=(const Profiler &) = delete;
    ~Profiler() {
        bwprof_profiler_destroy(handle_);
    }

    bwprof_profiler *get() const noexcept {
        return handle_;
    }
    void enable(bool enabled) {
        check(bwprof_profiler_enable(handle_, enabled));
    }
    void set_bytes(const std::string &name, uint64_t bytes_read, uint64_t bytes_written) {
        check(bwprof_profiler_set_bytes(handle_, name.c_str(), bytes_read, bytes_written));
    }
    double elapsed_ms(const std::string &name) {
        double value;
        return known(bwprof_profiler_elapsed_ms(handle_, name.c_str(), &value), value);
    }
    double bandwidth_gb_s(const std::string &name) {
        double value;
        return known(bwprof_profiler_bandwidth_gb_s(handle_, name.c_str(), &value), value);
    }
    int64_t count(const std::string &name) {
        int64_t value = 0;
        check(bwprof_profiler_count(handle_, name.c_str(), &value));
        return value;
    }
    void print_report(FILE *stream) {
        check(bwprof_profiler_print_report(handle_, stream));
    }
    void write_csv(const std::string &path) {
        check(bwprof_profiler_write_csv(handle_, path.c_str()));
    }
    void write_json(const std::string &path) {
        check(bwprof_profiler_write_json(handle_, path.c_str()));
    }
    void reset() {
        check(bwprof_profiler_reset(handle_));
    }

  private:
    static double known(bwprof_status status, const double &value) {
        if (status != BWPROF_UNKNOWN) check(status);
        return value;
    }

    bwprof_profiler *handle_ = nullptr;
};

// The process's own, of the first device there is. It is never destroyed: ranges may end after main().
inline Profiler &profiler() {
    static Profiler *const own = new Profiler(nullptr, std::nothrow);
    return *own;
}

// A range from here to the end of the scope, in this thread; it throws nothing, and where it cannot begin it is none.
// The name stays where it is until the range ends. Bytes: what one run of it moves; 0 and 0 say nothing.
class Range {
  public:
    explicit Range(const char *name, void *stream = nullptr, uint64_t bytes_read = 0,
                   uint64_t bytes_written = 0) noexcept
        : Range(profiler(), name, stream, bytes_read, bytes_written) {
    }
    Range(const Profiler &profiler, const char *name, void *stream = nullptr, uint64_t bytes_read = 0,
          uint64_t bytes_written = 0) noexcept {
        if (profiler.get()) bwprof_range_begin(profiler.get(), name, stream, bytes_read, bytes_written, &range_);
    }
    Range(const Range &) = delete;
    Range &operator=(const Range &) = delete;
    ~Range() {
        bwprof_range_end(&range_);
    }

  private:
    bwprof_range range_{nullptr, nullptr, nullptr};
};

// In a program's own sources, beside BWPROF_RANGE(profiler.get(), stream, bytes_read, bytes_written) and its like of
// bwprof.h: a range of the process's own profiler; nothing at all unless BWPROF_ENABLE is defined.
#ifdef BWPROF_ENABLE
#define BWPROF_SCOPE(name, stream)                         \
    ::bwprof::Range BWPROF_JOIN(bwprof_scope_, __LINE__) { \
        name, stream                                       \
    }
#else
#define BWPROF_SCOPE(name, stream) static_cast<void>(0)
#endif

}  // namespace bwprof
#endif
