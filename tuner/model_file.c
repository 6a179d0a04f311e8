/* SPDX-License-Identifier: Apache-2.0 */
/* The model's file: header, checksum, whole replacement. */
#include "tuner/model_file.h"

#include "common/byteorder.h"
#include "common/crc32c.h"
#include "common/io.h"
#include "tuner/window_features.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "KVFSTUNE";

enum { AT_VERSION = 8, AT_SCHEMA = 12, AT_COLUMNS = 16, AT_LENGTH = 20, AT_CRC = 24,
       AT_CONDITIONS = 28 };

static uint32_t checksum(const uint8_t *bytes, size_t len)
{
	return crc32c(crc32c(0, bytes, AT_CRC), bytes + AT_CONDITIONS, len - AT_CONDITIONS);
}

int model_file_decode(const uint8_t *bytes, size_t len, struct model_file_kind kind,
		      const uint8_t **ret_payload, size_t *ret_len, const char **ret_why)
{
	*ret_why = "it is not a tuner model";
	if (len < MODEL_FILE_HEADER_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0)
		return -EINVAL;
	*ret_why = "it is damaged";
	if (get_be32(bytes + AT_LENGTH) != len - MODEL_FILE_HEADER_BYTES ||
	    get_be32(bytes + AT_CRC) != checksum(bytes, len))
		return -EINVAL;
	*ret_why = "it comes from another version";
	if (get_be32(bytes + AT_VERSION) != MODEL_FILE_VERSION ||
	    get_be32(bytes + AT_SCHEMA) != TUNER_SCHEMA ||
	    get_be32(bytes + AT_COLUMNS) != kind.columns)
		return -ESTALE;
	*ret_why = "it was learnt with other options or on another machine";
	if (get_be32(bytes + AT_CONDITIONS) != kind.conditions)
		return -ESTALE;
	*ret_payload = bytes + MODEL_FILE_HEADER_BYTES;
	*ret_len = len - MODEL_FILE_HEADER_BYTES;
	return 0;
}

static int read_whole(int dirfd, uint8_t **ret_bytes, size_t *ret_len)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	int fd = openat(dirfd, MODEL_FILE_NAME, flags), err;
	uint8_t *bytes = NULL;
	struct stat st;

	if (fd < 0)
		return -errno;
	err = fstat(fd, &st) ? -errno : 0;
	if (!err && (!S_ISREG(st.st_mode) || st.st_size > MODEL_FILE_BYTES_MAX))
		err = -EFBIG;
	if (!err) {
		bytes = malloc((size_t)st.st_size + 1);
		err = bytes ? io_pread_full(fd, bytes, (size_t)st.st_size, 0) : -ENOMEM;
	}
	close(fd);
	if (err) {
		free(bytes);
		return err;
	}
	*ret_bytes = bytes;
	*ret_len = (size_t)st.st_size;
	return 0;
}

int model_file_load(int dirfd, struct model_file_kind kind, void **ret_payload, size_t *ret_len,
		    const char **ret_why)
{
	const uint8_t *payload;
	uint8_t *bytes = NULL;
	size_t len = 0;
	int err;

	*ret_why = "it can't be read";
	err = read_whole(dirfd, &bytes, &len);
	if (err)
		return err;
	err = model_file_decode(bytes, len, kind, &payload, &len, ret_why);
	if (err) {
		free(bytes);
		return err;
	}
	memmove(bytes, payload, len);
	*ret_payload = bytes;
	*ret_len = len;
	return 0;
}

int model_file_save(int dirfd, struct model_file_kind kind, const void *payload, size_t len)
{
	size_t total = MODEL_FILE_HEADER_BYTES + len;
	uint8_t *bytes;
	int err;

	if (total > MODEL_FILE_BYTES_MAX)
		return -EFBIG;
	bytes = calloc(1, total);
	if (!bytes)
		return -ENOMEM;
	memcpy(bytes, magic, sizeof(magic));
	put_be32(bytes + AT_VERSION, MODEL_FILE_VERSION);
	put_be32(bytes + AT_SCHEMA, TUNER_SCHEMA);
	put_be32(bytes + AT_COLUMNS, kind.columns);
	put_be32(bytes + AT_CONDITIONS, kind.conditions);
	put_be32(bytes + AT_LENGTH, (uint32_t)len);
	memcpy(bytes + MODEL_FILE_HEADER_BYTES, payload, len);
	put_be32(bytes + AT_CRC, checksum(bytes, total));
	err = io_replace_file(dirfd, MODEL_FILE_NAME, bytes, total, 0600);
	free(bytes);
	return err;
}
