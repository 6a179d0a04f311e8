/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_LOGDEV_H
#define KVFS_LOG_LOGDEV_H
/*
 * The log-device seam: one append-only pool that can be rewound whole.
 * Real: logdev_pmemlog*.c (libpmemlog). Model medium in memory for tests: logdev_mem.c. Fault
 * injector: logdev_fault.c (wraps either; fails or tears the n-th append, rewind or check, or stops
 * the medium there as a crash would).
 * One writer at a time per device (the caller's lock); size and base may be read by any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct logdev; /* an implementation's own; embeds nothing public */

struct logdev_ops {
	const char *name;

	/* Makes a pool of size bytes (file size) named name in dirfd. -EEXIST, -ENOSPC, -EINVAL
	 * (too small), -EFBIG (ulimit -f), -EACCES, -EPERM, -EROFS, -EMFILE, -EIO. On error
	 * nothing is left behind. Where the name is a symbolic link to a device-DAX, that becomes
	 * the pool, whole, whatever it held. */
	int (*create)(int dirfd, const char *name, uint64_t size_bytes);

	/* Opens an existing pool. -ENOENT, -EBUSY (open elsewhere), -EBADMSG (not a pool), -ENOSPC
	 * (a sparse copy, whose holes can't be filled), -EACCES, -EPERM (immutable), -EROFS,
	 * -EMFILE, -ENOMEM, -EIO. */
	int (*open)(int dirfd, const char *name, struct logdev **ret_dev);

	/* Appends the pieces as one unit; durable when it returns 0. -ENOSPC changes nothing.
	 * After -EIO the device takes no more appends. */
	int (*append)(struct logdev *dev, const struct iovec *iov, int iovcnt);

	/* Start of the stored bytes, mapped; valid until close. */
	const void *(*base)(struct logdev *dev);

	/* Bytes stored, and bytes that fit in all. */
	uint64_t (*used)(struct logdev *dev);
	uint64_t (*capacity)(struct logdev *dev);

	/* Empties the pool, durably. -EIO. */
	int (*rewind)(struct logdev *dev);

	/* Reports a write error the medium raised since the last call: 0 or -EIO, and from then on
	 * always -EIO. May block. Any thread. */
	int (*check)(struct logdev *dev);

	/* True where stores are made durable by cache flushes on persistent memory (DAX). */
	bool (*is_pmem)(struct logdev *dev);

	/* Tells the device that bytes below offset (at least the last 16 MiB below it) will rarely
	 * be read again; drops them from this process's resident memory. Any
	 * thread. Never fails. */
	void (*forget)(struct logdev *dev, uint64_t offset);

	void (*close)(struct logdev *dev);
};

extern const struct logdev_ops logdev_pmemlog_ops;
/* The same pools, for reading where nothing can be written: logdev_readonly.c. What would change
 * one is -EROFS. */
extern const struct logdev_ops logdev_readonly_ops;

/* What a pool begins with: the library's header and that of its log. */
#define LOGDEV_HEADER_BYTES 8192

/* Smallest pool mkfs.kvfs makes. */
#define LOGDEV_SIZE_MIN (8ULL << 20)

#endif
