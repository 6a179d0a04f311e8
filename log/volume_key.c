/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The volume's key file: the secret that its nodes prove to each other, and the UUID they share, so
 * that this one file makes another node's volume. Errors: 0 or -errno. Any thread.
 */
#include "log/volume.h"

#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KEY_LINE_BYTES (2 * VOLUME_KEY_BYTES + 1)
#define UUID_PREFIX "uuid="
#define KEY_FILE_MAX 256

char *volume_uuid_format(const uint8_t uuid[16], char out[VOLUME_UUID_TEXT_BYTES])
{
	char hex[33];

	sodium_bin2hex(hex, sizeof(hex), uuid, 16);
	snprintf(out, VOLUME_UUID_TEXT_BYTES, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
		 hex + 16, hex + 20);
	return out;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Exactly count bytes from 2 * count hex digits. */
static int hex_parse(const char *text, size_t count, uint8_t *out)
{
	for (size_t i = 0; i < count; i++) {
		int high = hex_digit(text[2 * i]);
		int low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);

		if (low < 0)
			return -EINVAL;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

int volume_uuid_parse(const char *text, size_t len, uint8_t ret_uuid[16])
{
	static const uint8_t groups[] = { 4, 2, 2, 2, 6 };
	uint8_t uuid[16];
	size_t at = 0, n = 0;

	if (len != VOLUME_UUID_TEXT_BYTES - 1)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(groups); i++) {
		if (i > 0 && text[at++] != '-')
			return -EINVAL;
		if (hex_parse(text + at, groups[i], uuid + n) != 0)
			return -EINVAL;
		at += 2U * groups[i];
		n += groups[i];
	}
	memcpy(ret_uuid, uuid, sizeof(uuid));
	return 0;
}

static int key_text_parse(const char *text, size_t len, uint8_t key[VOLUME_KEY_BYTES],
			  uint8_t uuid[16])
{
	const size_t prefix = strlen(UUID_PREFIX);

	if (len > 0 && text[len - 1] == '\n')
		len--;
	memset(uuid, 0, 16);
	if (len < KEY_LINE_BYTES - 1 || hex_parse(text, VOLUME_KEY_BYTES, key) != 0)
		return -EBADMSG;
	text += KEY_LINE_BYTES - 1;
	len -= KEY_LINE_BYTES - 1;
	if (len == 0)
		return 0;
	if (len < 1 + prefix || text[0] != '\n' || memcmp(text + 1, UUID_PREFIX, prefix) != 0)
		return -EBADMSG;
	return volume_uuid_parse(text + 1 + prefix, len - 1 - prefix, uuid) ? -EBADMSG : 0;
}

/* Up to cap bytes of the file; a longer one is not a key file. */
static int key_file_slurp(int fd, char *buf, size_t cap, size_t *ret_len)
{
	size_t len = 0;

	while (len < cap) {
		ssize_t n = read(fd, buf + len, cap - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0) {
			*ret_len = len;
			return 0;
		}
		len += (size_t)n;
	}
	return -EBADMSG;
}

int volume_key_read(int dirfd, const char *name, uint8_t ret_key[VOLUME_KEY_BYTES],
		    uint8_t ret_uuid[16])
{
	char text[KEY_FILE_MAX];
	uint8_t key[VOLUME_KEY_BYTES], uuid[16];
	size_t len = 0;
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int err;

	if (fd < 0)
		return -errno;
	err = key_file_slurp(fd, text, sizeof(text), &len);
	close(fd);
	if (!err)
		err = key_text_parse(text, len, key, uuid);
	if (!err) {
		memcpy(ret_key, key, sizeof(key));
		memcpy(ret_uuid, uuid, sizeof(uuid));
	}
	sodium_memzero(text, sizeof(text));
	sodium_memzero(key, sizeof(key));
	return err;
}

int volume_key_write(int dirfd, const char *name, const uint8_t key[VOLUME_KEY_BYTES],
		     const uint8_t uuid[16])
{
	char hex[KEY_LINE_BYTES], uuid_text[VOLUME_UUID_TEXT_BYTES], text[KEY_FILE_MAX];
	int len, err;

	sodium_bin2hex(hex, sizeof(hex), key, VOLUME_KEY_BYTES);
	len = snprintf(text, sizeof(text), "%s\n%s%s\n", hex, UUID_PREFIX,
		       volume_uuid_format(uuid, uuid_text));
	err = io_replace_file(dirfd, name, text, (size_t)len, 0600);
	sodium_memzero(text, sizeof(text));
	sodium_memzero(hex, sizeof(hex));
	return err;
}

void volume_key_id(const uint8_t key[VOLUME_KEY_BYTES], uint8_t ret_id[16])
{
	static const char context[] = "kvfs volume key id";

	crypto_generichash(ret_id, 16, (const uint8_t *)context, sizeof(context) - 1, key,
			   VOLUME_KEY_BYTES);
}
