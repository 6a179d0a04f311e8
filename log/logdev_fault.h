/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_LOGDEV_FAULT_H
#define KVFS_LOG_LOGDEV_FAULT_H
/*
 * The log-device fault injector: wraps logdev_mem_ops or logdev_pmemlog_ops and spoils the n-th
 * operation that reaches the medium. Appends, rewinds and checks of all wrapped devices are
 * counted together, from 1, so a test loops n from 1 until a run ends with the fault not reached:
 *
 *   logdev_fault_wrap(&logdev_mem_ops);
 *   logdev_fault_arm(&(struct logdev_fault){ .kind = LOGDEV_FAULT_CRASH, .at = n });
 *   ... run on logdev_fault_ops until something fails; close everything ...
 *   logdev_fault_disarm();
 *   ... open again: the medium is as the crash left it ...
 *
 * State is global. Any thread.
 */
#include "log/logdev.h"

enum logdev_fault_kind {
	LOGDEV_FAULT_NONE,         /* only count */
	LOGDEV_FAULT_ERROR,        /* the operation fails with .error; nothing reaches the medium */
	LOGDEV_FAULT_CRASH,        /* crash before the operation */
	LOGDEV_FAULT_CRASH_AFTER,  /* crash when it is durable and not yet reported */
	LOGDEV_FAULT_TEAR_PREFIX,  /* only .keep_bytes of the append are stored, then crash */
	LOGDEV_FAULT_TEAR_FLIP,    /* all is stored, with the bytes from .keep_bytes on wrong, then
				    * crash */
	LOGDEV_FAULT_TEAR_STALE,   /* all counts as stored, but from .keep_bytes on the medium kept
				    * what it had there before; then crash */
};

/* After a crash every append, rewind and check fails with -EIO until disarm. A tear of what is not
 * an append is a crash before it: rewinds are atomic. keep_bytes is taken modulo its length. */
struct logdev_fault {
	enum logdev_fault_kind kind;
	uint64_t at;        /* which operation, from 1 */
	uint64_t keep_bytes;
	int error;          /* negative, for LOGDEV_FAULT_ERROR */
	bool silent;        /* tears only: the append reports success and nothing crashes */
};

extern const struct logdev_ops logdev_fault_ops;

/* The device that is wrapped from the next create or open on. */
void logdev_fault_wrap(const struct logdev_ops *inner);

/* Arms the fault and counts from zero. */
void logdev_fault_arm(const struct logdev_fault *fault);
void logdev_fault_disarm(void);

/* Operations since arm; whether the armed fault has struck. */
uint64_t logdev_fault_count(void);
bool logdev_fault_struck(void);

#endif
