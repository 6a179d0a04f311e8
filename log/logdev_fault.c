/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log-device fault injector. The plan and the counters are global under fault_lock; the lock
 * isn't held over the inner device's operations.
 */
#include "log/logdev_fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct logdev {
	const struct logdev_ops *ops;
	struct logdev *inner;
	bool dead; /* an append failed: no more of them, as the seam says; writer only */
};

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
/* All under fault_lock. */
static const struct logdev_ops *wrapped_ops;
static struct logdev_fault plan;
static uint64_t op_count;
static bool struck, crashed;

void logdev_fault_wrap(const struct logdev_ops *inner)
{
	pthread_mutex_lock(&fault_lock);
	wrapped_ops = inner;
	pthread_mutex_unlock(&fault_lock);
}

void logdev_fault_arm(const struct logdev_fault *fault)
{
	pthread_mutex_lock(&fault_lock);
	plan = *fault;
	op_count = 0;
	struck = false;
	crashed = false;
	pthread_mutex_unlock(&fault_lock);
}

void logdev_fault_disarm(void)
{
	logdev_fault_arm(&(struct logdev_fault){ .kind = LOGDEV_FAULT_NONE });
}

uint64_t logdev_fault_count(void)
{
	uint64_t count;

	pthread_mutex_lock(&fault_lock);
	count = op_count;
	pthread_mutex_unlock(&fault_lock);
	return count;
}

bool logdev_fault_struck(void)
{
	bool result;

	pthread_mutex_lock(&fault_lock);
	result = struck;
	pthread_mutex_unlock(&fault_lock);
	return result;
}

static bool is_tear(enum logdev_fault_kind kind)
{
	return kind == LOGDEV_FAULT_TEAR_PREFIX || kind == LOGDEV_FAULT_TEAR_FLIP ||
	       kind == LOGDEV_FAULT_TEAR_STALE;
}

/* Counts one operation and says what is to happen to it; after a crash always CRASH. */
static struct logdev_fault next_fault(void)
{
	struct logdev_fault f = { .kind = LOGDEV_FAULT_NONE };

	pthread_mutex_lock(&fault_lock);
	if (crashed) {
		f.kind = LOGDEV_FAULT_CRASH;
	} else if (++op_count == plan.at && plan.kind != LOGDEV_FAULT_NONE) {
		f = plan;
		struck = true;
		crashed = f.kind != LOGDEV_FAULT_ERROR && !(is_tear(f.kind) && f.silent);
	}
	pthread_mutex_unlock(&fault_lock);
	return f;
}

static const struct logdev_ops *inner_ops(void)
{
	const struct logdev_ops *ops;

	pthread_mutex_lock(&fault_lock);
	ops = wrapped_ops;
	pthread_mutex_unlock(&fault_lock);
	return ops;
}

static int fault_create(int dirfd, const char *name, uint64_t size_bytes)
{
	return inner_ops()->create(dirfd, name, size_bytes);
}

static int fault_open(int dirfd, const char *name, struct logdev **ret_dev)
{
	struct logdev *dev = calloc(1, sizeof(*dev));
	int rc;

	if (dev == NULL)
		return -ENOMEM;
	dev->ops = inner_ops();
	rc = dev->ops->open(dirfd, name, &dev->inner);
	if (rc != 0) {
		free(dev);
		return rc;
	}
	*ret_dev = dev;
	return 0;
}

static size_t iov_flatten(const struct iovec *iov, int iovcnt, uint8_t **ret_bytes)
{
	size_t len = 0, at = 0;
	uint8_t *bytes;
	int i;

	for (i = 0; i < iovcnt; i++)
		len += iov[i].iov_len;
	bytes = malloc(len > 0 ? len : 1);
	for (i = 0; bytes != NULL && i < iovcnt; at += iov[i].iov_len, i++)
		if (iov[i].iov_len > 0)
			memcpy(bytes + at, iov[i].iov_base, iov[i].iov_len);
	*ret_bytes = bytes;
	return len;
}

/* Stores a spoilt copy of the append. */
static int append_torn(struct logdev *dev, const struct logdev_fault *f, const struct iovec *iov,
		       int iovcnt)
{
	uint64_t used = dev->ops->used(dev->inner);
	struct iovec torn;
	uint8_t *bytes;
	size_t len = iov_flatten(iov, iovcnt, &bytes), keep;
	int rc = 0;

	if (bytes == NULL)
		return -ENOMEM;
	keep = len > 0 ? f->keep_bytes % len : 0;
	torn = (struct iovec){ .iov_base = bytes, .iov_len = len };
	if (len > dev->ops->capacity(dev->inner) - used)
		rc = -ENOSPC;
	else if (f->kind == LOGDEV_FAULT_TEAR_PREFIX)
		torn.iov_len = keep;
	else if (f->kind == LOGDEV_FAULT_TEAR_FLIP)
		for (size_t i = keep; i < len; i++)
			bytes[i] ^= 0xff;
	else
		memcpy(bytes + keep, (const uint8_t *)dev->ops->base(dev->inner) + used + keep,
		       len - keep);
	if (rc == 0 && torn.iov_len > 0)
		rc = dev->ops->append(dev->inner, &torn, 1);
	free(bytes);
	return rc;
}

static int fault_append(struct logdev *dev, const struct iovec *iov, int iovcnt)
{
	struct logdev_fault f = next_fault();
	int rc = -EIO;

	if (dev->dead)
		return -EIO;
	switch (f.kind) {
	case LOGDEV_FAULT_NONE:
		rc = dev->ops->append(dev->inner, iov, iovcnt);
		break;
	case LOGDEV_FAULT_ERROR:
		rc = f.error;
		break;
	case LOGDEV_FAULT_CRASH:
		break;
	case LOGDEV_FAULT_CRASH_AFTER:
		(void)dev->ops->append(dev->inner, iov, iovcnt);
		break;
	default:
		rc = append_torn(dev, &f, iov, iovcnt);
		if (rc == 0 && !f.silent)
			rc = -EIO;
		break;
	}
	dev->dead = rc != 0 && rc != -ENOSPC;
	return rc;
}

static int fault_rewind(struct logdev *dev)
{
	struct logdev_fault f = next_fault();

	if (f.kind == LOGDEV_FAULT_NONE || (is_tear(f.kind) && f.silent))
		return dev->ops->rewind(dev->inner);
	if (f.kind == LOGDEV_FAULT_CRASH_AFTER)
		(void)dev->ops->rewind(dev->inner);
	return f.kind == LOGDEV_FAULT_ERROR ? f.error : -EIO;
}

static int fault_check(struct logdev *dev)
{
	struct logdev_fault f = next_fault();

	if (f.kind == LOGDEV_FAULT_NONE || (is_tear(f.kind) && f.silent))
		return dev->ops->check(dev->inner);
	return f.kind == LOGDEV_FAULT_ERROR ? f.error : -EIO;
}

static const void *fault_base(struct logdev *dev)
{
	return dev->ops->base(dev->inner);
}

static uint64_t fault_used(struct logdev *dev)
{
	return dev->ops->used(dev->inner);
}

static uint64_t fault_capacity(struct logdev *dev)
{
	return dev->ops->capacity(dev->inner);
}

static bool fault_is_pmem(struct logdev *dev)
{
	return dev->ops->is_pmem(dev->inner);
}

static void fault_forget(struct logdev *dev, uint64_t offset)
{
	dev->ops->forget(dev->inner, offset);
}

static void fault_close(struct logdev *dev)
{
	if (dev == NULL)
		return;
	dev->ops->close(dev->inner);
	free(dev);
}

const struct logdev_ops logdev_fault_ops = {
	.name = "fault",
	.create = fault_create,
	.open = fault_open,
	.append = fault_append,
	.base = fault_base,
	.used = fault_used,
	.capacity = fault_capacity,
	.rewind = fault_rewind,
	.check = fault_check,
	.is_pmem = fault_is_pmem,
	.forget = fault_forget,
	.close = fault_close,
};
