/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_FAKE_CUDA_H
#define KVFS_TESTS_FAKE_CUDA_H
/*
 * CUDA as a recording fake, for machines without a GPU: memory of the "device" is a memfd, which
 * stands for its dmabuf. gpu_setup() first; one thread sets it up, the pool's thread calls it.
 */
#include "replication/memory/region_memory.h"

#include <check.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
	int allocated, exported, attached, refuse_export, no_dmabuf, fail_alloc_after;
	size_t bytes;
} gpu;

static int cu_init(unsigned flags) { return 0; }
static int cu_device(int *ret_device, int ordinal)
{
	*ret_device = ordinal;
	return ordinal == 0 ? 0 : 101;
}
static int cu_attribute(int *ret_value, int attribute, int device)
{
	*ret_value = attribute == 124 && !gpu.no_dmabuf;
	return 0;
}
static int cu_retain(void **ret_context, int device)
{
	*ret_context = &gpu;
	gpu.attached++;
	return 0;
}
static int cu_release(int device)
{
	gpu.attached--;
	return 0;
}
static int cu_set(void *context) { return context == &gpu ? 0 : 201; }
static int cu_alloc(unsigned long long *ret_ptr, size_t bytes)
{
	if (gpu.fail_alloc_after >= 0 && gpu.allocated >= gpu.fail_alloc_after)
		return 2;
	*ret_ptr = 0x7f0000000000ULL + (unsigned long long)gpu.allocated * bytes;
	gpu.allocated++;
	gpu.bytes = bytes;
	return 0;
}
static int cu_free(unsigned long long ptr)
{
	ck_assert_uint_ne(ptr, 0);
	gpu.allocated--;
	return 0;
}
static int cu_export(void *ret_fd, unsigned long long ptr, size_t bytes, int type,
		     unsigned long long flags)
{
	int fd;

	ck_assert_int_eq(type, 1);
	if (gpu.refuse_export)
		return 801;
	fd = memfd_create("fake-gpu", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	*(int *)ret_fd = fd;
	gpu.exported++;
	return 0;
}

static const struct region_cuda fake_cuda = {
	cu_init, cu_device, cu_attribute, cu_retain, cu_release, cu_set, cu_alloc, cu_free,
		cu_export,
};

static inline void gpu_setup(void)
{
	memset(&gpu, 0, sizeof(gpu));
	gpu.fail_alloc_after = -1;
	region_gpu_use(&fake_cuda);
}

#endif
