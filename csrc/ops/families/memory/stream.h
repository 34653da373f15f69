/* The four streams: the plainest kernels there are, and the yardstick for all others.
 *   stream_read   a(n) -> checksum(segments): per 4096-byte segment of a, the wrapping sum of its 32-bit words
 *   stream_write  -> b(n): bw_pattern_value of each index
 *   stream_copy   a(n) -> b(n)
 *   stream_triad  a(n), b(n) -> c(n): c = a + 0.5 b
 * Copies over the link between host and device, of which what comes to the device counts as read, what leaves it as
 * written:
 *   host_to_device        a(n), on the host -> b(n)
 *   device_to_host        a(n) -> b(n), on the host
 *   host_device_exchange  both at once: a(n), on the host -> b(n); c(n) -> d(n), on the host */
#pragma once

#define BW_STREAM_OPERATIONS(X)       \
    X(stream_read, KERNELS, KERNELS)  \
    X(stream_write, KERNELS, KERNELS) \
    X(stream_copy, KERNELS, KERNELS)  \
    X(stream_triad, KERNELS, KERNELS) \
    X(host_to_device, NONE, KERNELS)  \
    X(device_to_host, NONE, KERNELS)  \
    X(host_device_exchange, NONE, KERNELS)

enum { BW_STREAM_ELEMENTS };
enum { BW_STREAM_SEGMENT_BYTES = 4096 }; /* the last segment is padded with zero bytes */
enum { BW_STREAM_READ_A, BW_STREAM_READ_CHECKSUM };
enum { BW_STREAM_WRITE_B };
enum { BW_STREAM_COPY_A, BW_STREAM_COPY_B };
enum { BW_STREAM_TRIAD_A, BW_STREAM_TRIAD_B, BW_STREAM_TRIAD_C };
enum { BW_LINK_A, BW_LINK_B, BW_LINK_C, BW_LINK_D };
#define BW_STREAM_TRIAD_FACTOR 0.5f
