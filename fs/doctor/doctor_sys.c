/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of a machine as small files below a root: see doctor_internal.h. */
#include "fs/doctor/doctor_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 3, 0)))
static int path_format(const struct doctor *d, char out[PATH_MAX], const char *fmt, va_list ap)
{
	int n = snprintf(out, PATH_MAX, "%s", d->root), m;

	if (n < 0 || n >= PATH_MAX)
		return -ENAMETOOLONG;
	m = vsnprintf(out + n, PATH_MAX - (size_t)n, fmt, ap);
	return m < 0 || m >= PATH_MAX - n ? -ENAMETOOLONG : 0;
}

static int file_read(const char *path, char *out, size_t cap)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t len = 0;
	ssize_t n = 0;
	int err = 0;

	if (fd < 0)
		return -errno;
	while (len + 1 < cap && (n = read(fd, out + len, cap - 1 - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		err = -errno;
	close(fd);
	while (len > 0 && strchr(" \t\r\n", out[len - 1]))
		len--;
	out[len] = '\0';
	return err;
}

int doctor_read(const struct doctor *d, char *out, size_t cap, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	int err;

	va_start(ap, fmt);
	err = path_format(d, path, fmt, ap);
	va_end(ap);
	return err ? err : file_read(path, out, cap);
}

int doctor_read_i64(const struct doctor *d, int64_t *ret_value, const char *fmt, ...)
{
	char path[PATH_MAX], text[64], *end;
	va_list ap;
	int64_t value;
	int err;

	va_start(ap, fmt);
	err = path_format(d, path, fmt, ap);
	va_end(ap);
	if (!err)
		err = file_read(path, text, sizeof(text));
	if (err)
		return err;
	errno = 0;
	value = strtoll(text, &end, 0);
	if (errno || end == text)
		return -EINVAL;
	*ret_value = value;
	return 0;
}

bool doctor_has(const struct doctor *d, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	int err;

	va_start(ap, fmt);
	err = path_format(d, path, fmt, ap);
	va_end(ap);
	return !err && access(path, F_OK) == 0;
}

static int name_compare(const void *a, const void *b)
{
	return strverscmp(a, b);
}

void doctor_list(const struct doctor *d, struct doctor_names *ret_names, const char *prefix,
		 const char *fmt, ...)
{
	char path[PATH_MAX];
	struct dirent *e;
	va_list ap;
	DIR *dir;
	int err;

	ret_names->count = 0;
	va_start(ap, fmt);
	err = path_format(d, path, fmt, ap);
	va_end(ap);
	dir = err ? NULL : opendir(path);
	if (!dir)
		return;
	while ((e = readdir(dir)) && ret_names->count < DOCTOR_NAMES_MAX) {
		if (e->d_name[0] == '.' || strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
		    strlen(e->d_name) >= DOCTOR_NAME_BYTES)
			continue;
		snprintf(ret_names->name[ret_names->count++], DOCTOR_NAME_BYTES, "%.63s",
			 e->d_name);
	}
	closedir(dir);
	qsort(ret_names->name, ret_names->count, sizeof(ret_names->name[0]), name_compare);
}

int doctor_line_u64(const struct doctor *d, const char *path, const char *key, uint64_t *ret_value)
{
	char text[8192], *line = text;
	size_t len = strlen(key);
	int err = doctor_read(d, text, sizeof(text), "%s", path);

	for (; !err && line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, len) == 0) {
			*ret_value = strtoull(line + len, NULL, 10);
			return 0;
		}
	}
	return err ? err : -ENOENT;
}

int doctor_node_of(const struct doctor *d, const char *device_dir)
{
	int64_t node;

	return doctor_read_i64(d, &node, "%s/numa_node", device_dir) == 0 && node >= 0 ?
			       (int)node : -1;
}

bool doctor_has_rdma(const struct doctor *d)
{
	struct doctor_names names;

	doctor_list(d, &names, "", "/sys/class/infiniband");
	return names.count > 0;
}
