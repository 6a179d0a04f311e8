/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of the control socket: see control.h. */
#include "fs/admin/control.h"

#include "fs/fuse/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* The volume's directory; of a /dev/pmemN it is mounted for as long as the call takes. */
static int control_open_volume(const char *volume, struct volume_place *ret_place)
{
	const char *why;

	if (volume_place_is_block(volume))
		return volume_place_open(volume, ret_place, &why);
	ret_place->dirfd = open(volume, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return ret_place->dirfd < 0 ? -errno : 0;
}

static int control_connect(const char *volume, unsigned timeout_s, int *ret_fd)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct timeval tv = { .tv_sec = timeout_s };
	struct volume_place place = VOLUME_PLACE_NONE;
	int fd, err = control_open_volume(volume, &place);

	if (err)
		return err;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		err = -errno;
		volume_place_close(&place);
		return err;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s", place.dirfd,
		 VOLUME_CONTROL_NAME);
	do
		err = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 ? 0 : -errno;
	while (err == -EINTR);
	volume_place_close(&place);
	if (err) {
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

/* A call with a time limit ends also when its process was stopped and goes on. */
static ssize_t control_send_some(int fd, const char *text, size_t len)
{
	ssize_t n;

	do
		n = send(fd, text, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n;
}

static ssize_t control_recv_some(int fd, char *buf, size_t cap)
{
	ssize_t n;

	do
		n = recv(fd, buf, cap, 0);
	while (n < 0 && errno == EINTR);
	return n;
}

static int control_exchange(int fd, json_t *request, json_t **ret_reply)
{
	char *text = json_dumps(request, JSON_COMPACT), *line;
	size_t len = 0;
	ssize_t n;

	if (!text)
		return -ENOMEM;
	n = control_send_some(fd, text, strlen(text));
	free(text);
	if (n < 0 || control_send_some(fd, "\n", 1) != 1)
		return -errno;
	line = malloc(CONTROL_LINE_MAX);
	if (!line)
		return -ENOMEM;
	line[0] = '\0';
	while (len + 1 < CONTROL_LINE_MAX && !strchr(line, '\n') &&
	       (n = control_recv_some(fd, line + len, CONTROL_LINE_MAX - 1 - len)) > 0) {
		len += (size_t)n;
		line[len] = '\0';
	}
	n = n < 0 ? -errno : 0;
	*ret_reply = n ? NULL : json_loads(line, 0, NULL);
	free(line);
	if (n)
		return (int)n == -EAGAIN ? -ETIMEDOUT : (int)n;
	return *ret_reply ? 0 : -EPROTO;
}

static int control_pidfd(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

int control_call(const char *where, json_t *request, unsigned timeout_s, json_t **ret_reply,
		 struct control_end *ret_end, char *why, size_t why_cap)
{
	char volume[PATH_MAX];
	int fd = -1, err = mountpoint_volume(where, volume, why, why_cap);

	if (err)
		return err;
	err = control_connect(volume, timeout_s, &fd);
	if (err) {
		if (err == -ENOENT || err == -ECONNREFUSED)
			snprintf(why, why_cap, "no kvfs is running on volume %s", volume);
		else
			snprintf(why, why_cap, "cannot reach the kvfs of volume %s: %s", volume,
				 strerror(-err));
		return err;
	}
	if (ret_end)
		*ret_end = (struct control_end){ .pidfd = control_pidfd(fd), .fd = fd };
	err = control_exchange(fd, request, ret_reply);
	if (err)
		snprintf(why, why_cap, "the kvfs of volume %s gives no answer: %s", volume,
			 strerror(-err));
	if (err && ret_end)
		control_end_close(ret_end);
	else if (!ret_end)
		close(fd);
	return err;
}

json_t *control_end_error(const struct control_end *end)
{
	char line[4096];
	ssize_t n = recv(end->fd, line, sizeof(line) - 1, MSG_DONTWAIT);

	if (n <= 0)
		return NULL;
	line[n] = '\0';
	return json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
}

void control_end_close(struct control_end *end)
{
	if (end->pidfd >= 0)
		close(end->pidfd);
	close(end->fd);
}
