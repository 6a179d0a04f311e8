/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arena memory of a GPU. Each region is allocated by CUDA and exported as a dmabuf: the RDMA device
 * registers that (region_registrar_ops.add_dmabuf), and the processor maps it, since values are
 * copied in and out by it. CUDA's driver library is loaded when it is first needed, never linked.
 * Where any step is refused, open fails and the caller takes host memory.
 *
 * Threads: commit, decommit and dmabuf from any, on ranges that do not overlap; a context is a
 * thread's, so each call sets it.
 */
#include "replication/memory/region_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CUDA_LIBRARY "libcuda.so.1"
#define CUDA_ATTRIBUTE_DMABUF 124 /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
#define CUDA_HANDLE_DMABUF 1      /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */

struct gpu_region {
	unsigned long long ptr; /* the device's address; 0: none */
	int fd;                 /* dmabuf */
};

struct region_gpu {
	const struct region_cuda *cuda;
	void *context;
	int device;
	uint8_t *base;
	uint64_t bytes;
	struct gpu_region region[];
};

static const struct region_cuda *cuda_given;

void region_gpu_use(const struct region_cuda *cuda)
{
	cuda_given = cuda;
}

/* NULL when the library, or one of its functions, is not there. It stays loaded. */
static const struct region_cuda *cuda_load(void)
{
	static struct region_cuda cuda;
	static const struct {
		const char *name;
		void **to;
	} wanted[] = {
		{ "cuInit", (void **)&cuda.init },
		{ "cuDeviceGet", (void **)&cuda.device_get },
		{ "cuDeviceGetAttribute", (void **)&cuda.device_attribute },
		{ "cuDevicePrimaryCtxRetain", (void **)&cuda.context_retain },
		{ "cuDevicePrimaryCtxRelease_v2", (void **)&cuda.context_release },
		{ "cuCtxSetCurrent", (void **)&cuda.context_set },
		{ "cuMemAlloc_v2", (void **)&cuda.alloc },
		{ "cuMemFree_v2", (void **)&cuda.free },
		{ "cuMemGetHandleForAddressRange", (void **)&cuda.export },
	};
	void *library = cuda_given ? NULL : dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (cuda_given || !library)
		return cuda_given;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		*wanted[i].to = dlsym(library, wanted[i].name);
		if (!*wanted[i].to) {
			dlclose(library);
			return NULL;
		}
	}
	return &cuda;
}

static int gpu_attach(struct region_gpu *g, const char *where)
{
	int shares = 0;

	if (g->cuda->init(0) != 0 ||
	    g->cuda->device_get(&g->device, where ? (int)strtol(where, NULL, 10) : 0) != 0)
		return -ENODEV;
	if (g->cuda->device_attribute(&shares, CUDA_ATTRIBUTE_DMABUF, g->device) != 0 || !shares)
		return -EOPNOTSUPP;
	return g->cuda->context_retain(&g->context, g->device) == 0 ? 0 : -ENODEV;
}

static void region_drop(struct region_gpu *g, struct gpu_region *r)
{
	if (r->fd >= 0)
		close(r->fd);
	if (r->ptr)
		g->cuda->free(r->ptr);
	*r = (struct gpu_region){ .fd = -1 };
}

static int gpu_commit(void *be, uint64_t off, uint64_t len)
{
	struct region_gpu *g = be;
	struct gpu_region *r = &g->region[off / REGION_BYTES];
	int err = 0;

	if (g->cuda->context_set(g->context) != 0)
		return -ENODEV;
	if (g->cuda->alloc(&r->ptr, len) != 0) {
		r->ptr = 0;
		return -ENOMEM;
	}
	if (g->cuda->export(&r->fd, r->ptr, len, CUDA_HANDLE_DMABUF, 0) != 0) {
		r->fd = -1;
		err = -EOPNOTSUPP;
	} else if (mmap(g->base + off, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		   r->fd, 0) ==
		   MAP_FAILED) {
		err = -ENXIO;
	}
	if (err) {
		/* the addresses stay ours, whatever the failed mapping took away */
		(void)mmap(g->base + off, len, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		region_drop(g, r);
		return err;
	}
	memset(g->base + off, 0, len);
	return 0;
}

static void gpu_decommit(void *be, uint64_t off, uint64_t len)
{
	struct region_gpu *g = be;

	mmap(g->base + off, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
	     MAP_FIXED, -1, 0);
	if (g->cuda->context_set(g->context) == 0)
		region_drop(g, &g->region[off / REGION_BYTES]);
}

static int gpu_dmabuf(void *be, uint64_t off, int *ret_fd, uint64_t *ret_fd_off)
{
	struct region_gpu *g = be;

	*ret_fd = g->region[off / REGION_BYTES].fd;
	*ret_fd_off = off % REGION_BYTES;
	return *ret_fd >= 0 ? 0 : -ENODEV;
}

static void gpu_close(void *be)
{
	struct region_gpu *g = be;

	if (g->context && g->cuda->context_set(g->context) == 0) {
		for (uint64_t i = 0; i < g->bytes / REGION_BYTES; i++)
			region_drop(g, &g->region[i]);
	}
	if (g->base)
		munmap(g->base, g->bytes);
	if (g->context)
		g->cuda->context_release(g->device);
	free(g);
}

static int gpu_open(const char *where, uint64_t arena_bytes, uint64_t huge_bytes, void **ret_be,
		    uint8_t **ret_base)
{
	uint64_t regions = arena_bytes / REGION_BYTES;
	struct region_gpu *g;
	int err;

	g = calloc(1, sizeof(*g) + regions * sizeof(g->region[0]));
	if (!g)
		return -ENOMEM;
	g->bytes = arena_bytes;
	for (uint64_t i = 0; i < regions; i++)
		g->region[i].fd = -1;
	g->cuda = cuda_load();
	err = g->cuda ? gpu_attach(g, where) : -ENOENT;
	if (!err)
		err = region_address_reserve(arena_bytes, REGION_BYTES, &g->base);
	if (!err) { /* one region, to know that all steps work here */
		err = gpu_commit(g, 0, REGION_BYTES);
		if (!err)
			gpu_decommit(g, 0, REGION_BYTES);
	}
	if (err) {
		gpu_close(g);
		return err;
	}
	*ret_be = g;
	*ret_base = g->base;
	return 0;
}

static bool gpu_hugepages(void *be)
{
	(void)be;
	return true; /* the device's own pages are at least 64 KiB */
}

const struct region_backend_ops region_gpu_ops = {
	.name = "gpu",
	.open = gpu_open,
	.commit = gpu_commit,
	.decommit = gpu_decommit,
	.hugepages = gpu_hugepages,
	.dmabuf = gpu_dmabuf,
	.close = gpu_close,
};
