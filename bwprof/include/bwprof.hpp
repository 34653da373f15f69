// bwprof in C++: what bwprof.h has, released by itself. Header only, C++11, with or without exceptions.
//
//   { bwprof::Range r{"gemm", stream}; launch_gemm(stream); }
//   bwprof::profiler().print_report(stdout);
//
// Without exceptions (-fno-exceptions) nothing throws: a profiler that could not be made is false, and status() is its
// first answer that was no success, until clear_status().
//
//   bwprof::Profiler p{std::nothrow, "cuda"};      // the same with exceptions: this one and ranges never throw
//   if (!p) return puts(bwprof_last_error()), 1;
#ifndef BWPROF_HPP
#define BWPROF_HPP

#include <atomic>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "bwprof.h"

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#define BWPROF_EXCEPTIONS 1
#else
#define BWPROF_EXCEPTIONS 0
#endif

namespace bwprof {

#if BWPROF_EXCEPTIONS
// What a function of bwprof.h answered, and bwprof_last_error().
class Error : public std::runtime_error {
  public:
    explicit Error(bwprof_status status) : Error(status, bwprof_last_error()) {
    }
    Error(bwprof_status status, const char *text) : std::runtime_error(text), status_(status) {
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
#endif

// A number of bytes, made of any integer; one below 0 is no such number.
class Bytes {
  public:
    template <typename Integer, typename = typename std::enable_if<std::is_integral<Integer>::value>::type>
    Bytes(Integer value) noexcept : value_(static_cast<uint64_t>(value)), known_(!is_negative(value)) {
        static_assert(sizeof(Integer) <= sizeof(uint64_t), "bytes are counted in 64 bits");
    }
    bool known() const noexcept {
        return known_;
    }
    uint64_t or_none() const noexcept {
        return known_ ? value_ : 0;
    }

  private:
    template <typename Integer>
    static bool is_negative(Integer value) noexcept {
        return std::is_signed<Integer>::value && value < Integer(1) && value != Integer(0);
    }

    uint64_t value_;
    bool known_;
};

// A profiler of one's own; its functions throw Error. NaN stands for a number that is not known (yet).
class Profiler {
  public:
    explicit Profiler(const char *backend = nullptr, int device = 0) {
        take(bwprof_profiler_create(backend, device, &handle_));
    }
    explicit Profiler(std::nothrow_t, const char *backend = nullptr, int device = 0) noexcept {
        status_ = bwprof_profiler_create(backend, device, &handle_);  // none: ranges do nothing
    }
    Profiler(Profiler &&other) noexcept : handle_(other.handle_), status_(other.status()) {
        other.handle_ = nullptr;
    }
    Profiler &operator=(Profiler &&other) noexcept {
        std::swap(handle_, other.handle_);
        status_ = other.status();
        if (this != &other) other.destroy();
        return *this;
    }
    Profiler(const Profiler &) = delete;
    Profiler &operator=(const Profiler &) = delete;
    ~Profiler() {
        destroy();
    }

    explicit operator bool() const noexcept {
        return handle_ != nullptr;
    }
    // Without exceptions, and of a nothrow profiler's making: the first answer that was no success.
    bwprof_status status() const noexcept {
        return status_;
    }
    void clear_status() noexcept {
        status_ = BWPROF_OK;
    }
    bwprof_profiler *get() const noexcept {
        return handle_;
    }
    void enable(bool enabled) {
        take(bwprof_profiler_enable(handle_, enabled));
    }
    void set_bytes(const std::string &name, Bytes bytes_read, Bytes bytes_written) {
        if (!bytes_read.known() || !bytes_written.known()) return refuse_bytes();
        take(bwprof_profiler_set_bytes(handle_, name.c_str(), bytes_read.or_none(), bytes_written.or_none()));
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
        take(bwprof_profiler_count(handle_, name.c_str(), &value));
        return value;
    }
    void print_report(FILE *stream) {
        take(bwprof_profiler_print_report(handle_, stream));
    }
    void write_csv(const std::string &path) {
        take(bwprof_profiler_write_csv(handle_, path.c_str()));
    }
    void write_json(const std::string &path) {
        take(bwprof_profiler_write_json(handle_, path.c_str()));
    }
    void reset() {
        take(bwprof_profiler_reset(handle_));
    }

  private:
    double known(bwprof_status status, const double &value) {
        if (status != BWPROF_UNKNOWN) take(status);
        return value;
    }
    void destroy() noexcept {
        bwprof_profiler_destroy(handle_);
        handle_ = nullptr;
    }
#if BWPROF_EXCEPTIONS
    void take(bwprof_status status) {
        check(status);
    }
    void refuse_bytes() {
        throw Error(BWPROF_INVALID, "bytes below 0: allowed is 0 or more");
    }
#else
    void take(bwprof_status status) noexcept {
        bwprof_status none = BWPROF_OK;
        if (status != BWPROF_OK) status_.compare_exchange_strong(none, status);
    }
    void refuse_bytes() noexcept {
        take(BWPROF_INVALID);
    }
#endif

    bwprof_profiler *handle_ = nullptr;
    std::atomic<bwprof_status> status_{BWPROF_OK};
};

// The process's own, of the first device there is. It is never destroyed: ranges may end after main().
inline Profiler &profiler() {
    alignas(Profiler) static unsigned char place[sizeof(Profiler)];
    static Profiler *const own = new (place) Profiler(std::nothrow);
    return *own;
}

// A range from here to the end of the scope, in this thread; it throws nothing, and where it cannot begin it is none.
// The name stays where it is until the range ends. Bytes: what one run of it moves, of any integers; 0 and 0, and what
// is below 0, say nothing.
class Range {
  public:
    explicit Range(const char *name, void *stream = nullptr, Bytes bytes_read = 0, Bytes bytes_written = 0) noexcept
        : Range(profiler(), name, stream, bytes_read, bytes_written) {
    }
    Range(const Profiler &profiler, const char *name, void *stream = nullptr, Bytes bytes_read = 0,
          Bytes bytes_written = 0) noexcept {
        const bool known = bytes_read.known() && bytes_written.known();
        const uint64_t read = known ? bytes_read.or_none() : 0, written = known ? bytes_written.or_none() : 0;
        if (profiler) bwprof_range_begin(profiler.get(), name, stream, read, written, &range_);
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
