/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_MODEL_FILE_H
#define KVFS_TUNER_MODEL_FILE_H
/*
 * The file a volume keeps its tuner's model in, replaced as a whole, and its header (network byte
 * order):
 *   magic "KVFSTUNE" (8) | format version (4) | feature schema (4) | columns (4) | payload length
 *      (4) |
 *   CRC32C of all other bytes (4) | conditions (4) | payload
 * A file with another schema is foreign: it was learnt from other features. So is one learnt under
 * other conditions: its levels stand for other values (tuner_loop_config). Blocks on disk. Any
 * thread.
 */
#include <stddef.h>
#include <stdint.h>

#define MODEL_FILE_NAME "tuner.model"
#define MODEL_FILE_HEADER_BYTES 32
#define MODEL_FILE_VERSION 2
#define MODEL_FILE_BYTES_MAX (16U << 20)

/* What the model must have been made for. */
struct model_file_kind {
	uint32_t columns;
	uint32_t conditions; /* a hash of what its levels mean */
};

/* Checks len bytes of a file; the payload lies in them. -EINVAL: damaged or not a model;
 * -ESTALE: another version, schema or kind. *ret_why: a static sentence, in both cases. */
int model_file_decode(const uint8_t *bytes, size_t len, struct model_file_kind kind,
		      const uint8_t **ret_payload, size_t *ret_len, const char **ret_why);

/* Reads the volume's file. *ret_payload is malloc'ed. -ENOENT: none; as decode; -errno of open
 * and read. */
int model_file_load(int dirfd, struct model_file_kind kind, void **ret_payload, size_t *ret_len,
		    const char **ret_why);

/* Atomic and durable. -EFBIG, -ENOMEM, -errno of io_replace_file. */
int model_file_save(int dirfd, struct model_file_kind kind, const void *payload, size_t len);

#endif
