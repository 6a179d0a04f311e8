/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_REGION_MEMORY_H
#define KVFS_REPLICATION_REGION_MEMORY_H
/*
 * Which memory the arena lies in: the option memory=, and the back-ends behind region_backend_ops.
 *
 *   host             memfd, in hugepages where enough are reserved (region_memfd.c)
 *   numa:N           the same, bound to NUMA node N: how a CXL memory pool appears (region_memfd.c)
 *   devdax:/dev/daxX.Y  a device-DAX, used as plain memory: what it held is lost (region_devdax.c)
 *   gpu, gpu:N       memory of CUDA device N, by dmabuf (region_gpu.c); host memory where that
 * can't be
 */
#include "replication/memory/region.h"

#include <limits.h>

#define REGION_MEMORY_WHY_BYTES (PATH_MAX + 256)

struct region_memory {
	const struct region_backend_ops *ops;
	const char *where; /* points into the text parsed */
};

extern const struct region_backend_ops region_numa_ops, region_devdax_ops, region_gpu_ops;

/* NULL or "" is host. -EINVAL with a sentence. Pure. */
int region_memory_parse(const char *text, struct region_memory *ret_memory,
			char why[REGION_MEMORY_WHY_BYTES]);

/* What there is in all, for the default size of the arena and its bound; 0: not known (GPU), or
 * none. */
uint64_t region_memory_bytes(const struct region_memory *m);

/* Cause and remedy of an error that region_pool_create_in gave for this memory. */
const char *region_memory_why(const struct region_memory *m, int err);

/*
 * Whether bytes may be locked, as registering them with a device does. -ENOMEM with a sentence that
 * says what to set. No limit for who has CAP_IPC_LOCK.
 */
int region_memlock_check(uint64_t bytes, char why[REGION_MEMORY_WHY_BYTES]);

/* Addresses only, PROT_NONE, aligned. */
int region_address_reserve(uint64_t len, uint64_t align, uint8_t **ret_base);

/* Memory of a NUMA node, 0 when there is no such node or it has none; what of it is free. */
uint64_t region_node_bytes(unsigned node);
uint64_t region_node_free_bytes(unsigned node);

/* The functions of CUDA's driver library that are used: the library's own, or a test's. All return
 * 0 or an error number of CUDA's. */
struct region_cuda {
	int (*init)(unsigned flags);
	int (*device_get)(int *ret_device, int ordinal);
	int (*device_attribute)(int *ret_value, int attribute, int device);
	int (*context_retain)(void **ret_context, int device);
	int (*context_release)(int device);
	int (*context_set)(void *context);
	int (*alloc)(unsigned long long *ret_ptr, size_t bytes);
	int (*free)(unsigned long long ptr);
	int (*export)(void *ret_fd, unsigned long long ptr, size_t bytes, int type, unsigned
	     long long flags);
};
/* From now on opens use this; NULL: libcuda.so.1, loaded then. For tests; one thread. */
void region_gpu_use(const struct region_cuda *cuda);

#endif
