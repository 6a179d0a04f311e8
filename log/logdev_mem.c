/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model medium. One table under one mutex; an open pool has one writer, and used() may be read
 * by others. Smaller pools than LOGDEV_SIZE_MIN are allowed: crash tests loop over many.
 */
#include "log/logdev_mem.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <urcu/list.h>

struct logdev {
	struct cds_list_head node; /* table_lock */
	int dirfd;
	char *name;
	uint8_t *bytes;
	uint64_t capacity;
	_Atomic uint64_t used;     /* release by the writer, acquire by readers */
	bool is_open;              /* table_lock */
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static CDS_LIST_HEAD(table);

static struct logdev *find_locked(int dirfd, const char *name)
{
	struct logdev *dev;

	cds_list_for_each_entry(dev, &table, node)
		if (dev->dirfd == dirfd && strcmp(dev->name, name) == 0)
			return dev;
	return NULL;
}

static void mem_free(struct logdev *dev)
{
	free(dev->bytes);
	free(dev->name);
	free(dev);
}

static int mem_create(int dirfd, const char *name, uint64_t size_bytes)
{
	struct logdev *dev = calloc(1, sizeof(*dev));
	int rc = 0;

	if (dev == NULL)
		return -ENOMEM;
	dev->dirfd = dirfd;
	dev->name = strdup(name);
	dev->bytes = calloc(1, size_bytes);
	dev->capacity = size_bytes;
	if (dev->name == NULL || dev->bytes == NULL) {
		mem_free(dev);
		return -ENOSPC;
	}
	pthread_mutex_lock(&table_lock);
	if (find_locked(dirfd, name) != NULL)
		rc = -EEXIST;
	else
		cds_list_add_tail(&dev->node, &table);
	pthread_mutex_unlock(&table_lock);
	if (rc != 0)
		mem_free(dev);
	return rc;
}

static int mem_open(int dirfd, const char *name, struct logdev **ret_dev)
{
	struct logdev *dev;
	int rc = 0;

	pthread_mutex_lock(&table_lock);
	dev = find_locked(dirfd, name);
	if (dev == NULL)
		rc = -ENOENT;
	else if (dev->is_open)
		rc = -EBUSY;
	else
		dev->is_open = true;
	pthread_mutex_unlock(&table_lock);
	if (rc == 0)
		*ret_dev = dev;
	return rc;
}

static int mem_append(struct logdev *dev, const struct iovec *iov, int iovcnt)
{
	uint64_t used = atomic_load_explicit(&dev->used, memory_order_relaxed), at = used;
	int i;

	for (i = 0; i < iovcnt; i++) {
		if (iov[i].iov_len > dev->capacity - at)
			return -ENOSPC;
		at += iov[i].iov_len;
	}
	for (i = 0, at = used; i < iovcnt; i++) {
		if (iov[i].iov_len > 0)
			memcpy(dev->bytes + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	atomic_store_explicit(&dev->used, at, memory_order_release);
	return 0;
}

static const void *mem_base(struct logdev *dev)
{
	return dev->bytes;
}

static uint64_t mem_used(struct logdev *dev)
{
	return atomic_load_explicit(&dev->used, memory_order_acquire);
}

static uint64_t mem_capacity(struct logdev *dev)
{
	return dev->capacity;
}

static int mem_rewind(struct logdev *dev)
{
	atomic_store_explicit(&dev->used, 0, memory_order_release);
	return 0;
}

static int mem_check(struct logdev *dev)
{
	(void)dev;
	return 0;
}

static bool mem_is_pmem(struct logdev *dev)
{
	(void)dev;
	return false;
}

static void mem_forget(struct logdev *dev, uint64_t offset)
{
	(void)dev;
	(void)offset;
}

static void mem_close(struct logdev *dev)
{
	if (dev == NULL)
		return;
	pthread_mutex_lock(&table_lock);
	assert(dev->is_open);
	dev->is_open = false;
	pthread_mutex_unlock(&table_lock);
}

const struct logdev_ops logdev_mem_ops = {
	.name = "mem",
	.create = mem_create,
	.open = mem_open,
	.append = mem_append,
	.base = mem_base,
	.used = mem_used,
	.capacity = mem_capacity,
	.rewind = mem_rewind,
	.check = mem_check,
	.is_pmem = mem_is_pmem,
	.forget = mem_forget,
	.close = mem_close,
};

uint8_t *logdev_mem_bytes(int dirfd, const char *name)
{
	struct logdev *dev;

	pthread_mutex_lock(&table_lock);
	dev = find_locked(dirfd, name);
	pthread_mutex_unlock(&table_lock);
	return dev != NULL ? dev->bytes : NULL;
}

void logdev_mem_set_used(int dirfd, const char *name, uint64_t used)
{
	struct logdev *dev;

	pthread_mutex_lock(&table_lock);
	dev = find_locked(dirfd, name);
	assert(dev != NULL && !dev->is_open && used <= dev->capacity);
	atomic_store_explicit(&dev->used, used, memory_order_release);
	pthread_mutex_unlock(&table_lock);
}

void logdev_mem_reset(void)
{
	struct logdev *dev, *next;

	pthread_mutex_lock(&table_lock);
	cds_list_for_each_entry_safe(dev, next, &table, node) {
		assert(!dev->is_open);
		cds_list_del(&dev->node);
		mem_free(dev);
	}
	pthread_mutex_unlock(&table_lock);
}
