/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_TRACE_WRITER_H
#define KVFS_TUNER_TRACE_WRITER_H
/*
 * A recording's file, which may lie on a file system that is full or hangs: a thread of its own
 * ("kv-trace") opens it, writes and closes it. Who records gets a FILE whose writes only copy to a
 * queue of bounded size. What the disk said of earlier bytes, or a queue that is full, is an error
 * of a later write: a recording then ends, and nobody waits.
 *
 * Threads: the FILE is one thread's at a time. kv-trace may outlive it, where a file system hangs:
 * it then waits for that alone, and frees what it has when the call returns.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_WRITER_QUEUE_BYTES (4U << 20) /* about a thousand windows */
#define TRACE_WRITER_WAIT_NS (3ULL * 1000 * 1000 * 1000) /* for an open, and for a close */

/*
 * open gives the descriptor to write to or -errno; it runs in kv-trace, and path is copied. Closing
 * the FILE waits until all is written, and is an error (EIO) when that failed or took too long.
 * -ETIMEDOUT: the file system did not answer; what open said; -ENOMEM, -EAGAIN.
 */
int trace_writer_open(int (*open)(const char *path), const char *path, size_t queue_bytes,
		      uint64_t wait_ns, FILE **ret_file);

#endif
