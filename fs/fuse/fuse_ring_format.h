/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_FUSE_RING_FORMAT_H
#define KVFS_FS_FUSE_RING_FORMAT_H
/*
 * The kernel's interface of FUSE over io_uring (Linux 6.14,
 * Documentation/filesystems/fuse-io-uring.rst), which the headers of older distributions lack. Host
 * byte order: both ends are one machine.
 */
#include <assert.h>
#include <stdint.h>

#define FUSE_RING_INIT_EXT (1u << 30)    /* in flags of the INIT answer: flags2 counts */
#define FUSE_RING_INIT_FLAGS2 (1u << 9)  /* FUSE_OVER_IO_URING, bit 41 of both flag words */
#define FUSE_RING_INIT_FLAGS_OFF 12      /* of flags in fuse_init_in and fuse_init_out */
#define FUSE_RING_INIT_IN_FLAGS2_OFF 16
#define FUSE_RING_INIT_OUT_FLAGS2_OFF 32

#define FUSE_RING_CMD_REGISTER 1         /* gives an entry's buffers and fetches a request */
#define FUSE_RING_CMD_COMMIT_AND_FETCH 2 /* answers a request and fetches another */
#define FUSE_RING_CMD_OFF 48             /* of struct fuse_ring_cmd in an SQE of 128 bytes */

struct fuse_ring_cmd {
	uint64_t flags;
	uint64_t commit_id;
	uint16_t qid;
	uint8_t padding[6];
};
static_assert(sizeof(struct fuse_ring_cmd) == 24, "fuse_uring_cmd_req");

/* An entry's header buffer; the payload buffer lies apart. */
struct fuse_ring_headers {
	uint8_t in_out[128]; /* fuse_in_header, then fuse_out_header */
	uint8_t op_in[128];  /* what follows it in a request, if that has a fixed size */
	uint64_t flags;
	uint64_t commit_id;
	uint32_t payload_bytes;
	uint32_t padding;
	uint64_t reserved;
};
static_assert(sizeof(struct fuse_ring_headers) == 288, "fuse_uring_req_header");

#endif
