/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of the control socket: see control.h. */
#include "fs/admin/control.h"

#include "common/clock.h"
#include "common/diag.h"
#include "common/io.h"
#include "common/json_text.h"
#include "fs/node/node_tuner.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <urcu/list.h>

#define CONTROL_IO_SECONDS 10
#define CONTROL_CONNECTIONS_MAX 16
#define CONTROL_THREADS_MAX (2 * CONTROL_CONNECTIONS_MAX) /* those that are dropped included */
#define CONTROL_DROP_NS NSEC_PER_SEC /* for these to end */
#define CONTROL_LAST_NS NSEC_PER_SEC /* to take a reply, when the server ends */
#define CONTROL_BIND_MS 1000 /* between tries, while there is no room for it */
#define CONTROL_ACCEPT_MS 100 /* after a connection that found no descriptor */
#define CONTROL_CKPT_NS (3600 * NSEC_PER_SEC)

struct control {
	struct node *node;
	struct fs *fs;
	int listen_fd; /* control thread; -1: there was no room for the socket yet */
	int stop_fd, shutdown_fd;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t idle;
	unsigned connections, dropped; /* dropped: of those, the ones told to end */
	/* those that the server waits for, oldest first: for a whole request, or until a reply is
	 * taken */
	struct cds_list_head waited_for;
	int farewell_fd; /* who asked for the shutdown; -1: nobody */
};

struct control_conn {
	struct control *c;
	int fd;
	struct cds_list_head node; /* in waited_for, or empty; the control's lock */
	bool dropped;              /* likewise */
};

/* detail: behind what, in one sentence; may be "". */
static json_t *control_refuse(const char *what, const char *detail)
{
	json_t *no;
	char *text;

	if (asprintf(&text, "%s%s", what, detail) < 0)
		return NULL;
	no = json_pack("{s:b, s:o}", "ok", 0, "error", json_text(text));
	free(text);
	return no;
}

static json_t *control_checkpoint(struct control *c)
{
	int err = node_ckpt_make(c->node, CONTROL_CKPT_NS);

	if (err)
		return control_refuse("checkpoint failed: ", strerror(-err));
	return json_pack("{s:b, s:I}", "ok", 1, "lsn", (json_int_t)c->node->ckpt_lsn);
}

static json_t *control_shutdown(struct control *c)
{
	int err = c->fs ? fs_unmount(c->fs, false) : 0;
	uint64_t one = 1;

	if (err == -EBUSY)
		return control_refuse(
			c->fs->mountpoint,
			" is in use: close its files and leave its directories first");
	if (err)
		return control_refuse("cannot unmount: ", strerror(-err));
	io_write_full(c->shutdown_fd, &one, sizeof(one));
	return json_pack("{s:b, s:i}", "ok", 1, "pid", (int)getpid());
}

/* ret_stays: the connection is to hear how it ends. */
static json_t *control_serve(struct control *c, const char *line, bool *ret_stays)
{
	json_t *request = json_loads(line, JSON_REJECT_DUPLICATES, NULL), *reply;
	const char *cmd = json_string_value(json_object_get(request, "cmd"));

	if (!cmd)
		reply = control_refuse("the request is not a JSON object with a cmd", "");
	else if (strcmp(cmd, "status") == 0)
		reply =
		    status_json(c->node, c->fs, json_is_true(json_object_get(request, "digest")));
	else if (strcmp(cmd, "metrics") == 0)
		reply = status_metrics_json(c->node);
	else if (strcmp(cmd, "tune") == 0)
		reply = control_tune(c->node, request);
	else if (strcmp(cmd, "checkpoint") == 0)
		reply = control_checkpoint(c);
	else if (strcmp(cmd, "shutdown") == 0)
		reply = control_shutdown(c);
	else
		reply = control_refuse("unknown command ", cmd);
	*ret_stays = cmd && strcmp(cmd, "shutdown") == 0 &&
		     json_is_true(json_object_get(reply, "ok"));
	json_decref(request);
	return reply;
}

/* However slowly it comes: CONTROL_IO_SECONDS for the whole line, and no longer than the server. */
static int control_read_line(const struct control *c, int fd, char *line, size_t cap)
{
	uint64_t deadline_ns = clock_mono_ns() + CONTROL_IO_SECONDS * NSEC_PER_SEC, now;
	struct pollfd fds[2] = { { .fd = fd, .events = POLLIN },
				 { .fd = c->stop_fd, .events = POLLIN } };
	size_t len = 0;

	while (len + 1 < cap) {
		ssize_t n;

		now = clock_mono_ns();
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (poll(fds, 2, (int)((deadline_ns - now) / NSEC_PER_MSEC) + 1) <= 0)
			continue;
		if (!fds[0].revents)
			return -ESHUTDOWN;
		n = recv(fd, line + len, cap - 1 - len, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		len += (size_t)n;
		line[len] = '\0';
		if (strchr(line, '\n'))
			return 0;
	}
	return -EMSGSIZE;
}

static bool control_peer_ok(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
	       (peer.uid == 0 || peer.uid == geteuid());
}

/* Its reply finds no room: from now on it gives way to others, if need be. */
static void control_stalls(struct control_conn *conn)
{
	pthread_mutex_lock(&conn->c->lock);
	if (cds_list_empty(&conn->node) && !conn->dropped)
		cds_list_add_tail(&conn->node, &conn->c->waited_for);
	pthread_mutex_unlock(&conn->c->lock);
}

/* For room in fd, to *deadline_ns, which is soon once the server ends. */
static void control_await_room(struct pollfd fds[2], uint64_t *deadline_ns)
{
	uint64_t now = clock_mono_ns();

	if (now >= *deadline_ns ||
	    poll(fds, 2, (int)((*deadline_ns - now) / NSEC_PER_MSEC) + 1) <= 0 || !fds[1].revents)
		return;
	fds[1].fd = -1;
	fds[1].revents = 0;
	if (*deadline_ns > now + CONTROL_LAST_NS)
		*deadline_ns = now + CONTROL_LAST_NS;
}

/* However slowly it is taken: CONTROL_IO_SECONDS for all of it. conn NULL: the server is gone. */
static void control_send(struct control_conn *conn, int fd, const char *out, size_t len)
{
	uint64_t deadline_ns = clock_mono_ns() + CONTROL_IO_SECONDS * NSEC_PER_SEC;
	struct pollfd fds[2] = { { .fd = fd, .events = POLLOUT },
				 { .fd = conn ? conn->c->stop_fd : -1, .events = POLLIN } };

	while (len > 0 && clock_mono_ns() < deadline_ns) {
		ssize_t n = send(fd, out, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			out += n;
			len -= (size_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			if (conn)
				control_stalls(conn);
			control_await_room(fds, &deadline_ns);
		} else if (n == 0 || errno != EINTR) {
			return;
		}
	}
}

static void control_reply(struct control_conn *conn, int fd, json_t *reply)
{
	char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
	const char *out = text ? text : "{\"ok\":false,\"error\":\"out of memory\"}";
	char *line = NULL;
	int len = asprintf(&line, "%s\n", out);

	if (len > 0)
		control_send(conn, fd, line, (size_t)len);
	free(len > 0 ? line : NULL);
	free(text);
}

/* Its request is there: until it lets us wait again it gives way to nobody. False: it has
 * already. */
static bool control_speaks(struct control_conn *conn)
{
	bool dropped;

	pthread_mutex_lock(&conn->c->lock);
	cds_list_del_init(&conn->node);
	dropped = conn->dropped;
	pthread_mutex_unlock(&conn->c->lock);
	return !dropped;
}

/* The last of a connection. stays: it waits for the daemon's end. */
static void control_leave(struct control_conn *conn, bool stays)
{
	struct control *c = conn->c;

	pthread_mutex_lock(&c->lock);
	cds_list_del_init(&conn->node);
	if (stays && c->farewell_fd < 0)
		c->farewell_fd = conn->fd;
	else
		close(conn->fd);
	c->connections--;
	c->dropped -= conn->dropped;
	free(conn);
	pthread_cond_signal(&c->idle);
	pthread_mutex_unlock(&c->lock);
}

static void *control_conn_main(void *arg)
{
	struct control_conn *conn = arg;
	struct control *c = conn->c;
	char line[4096];
	bool stays = false;
	json_t *reply;

	if (!control_peer_ok(conn->fd)) {
		reply = control_refuse("only root and the daemon's user may ask", "");
		control_reply(conn, conn->fd, reply);
		json_decref(reply);
	} else if (control_read_line(c, conn->fd, line, sizeof(line)) == 0 &&
		   control_speaks(conn)) {
		reply = control_serve(c, line, &stays);
		control_reply(conn, conn->fd, reply);
		json_decref(reply);
	}
	control_leave(conn, stays);
	return NULL;
}

/* A place for one more connection. Where all are taken the oldest that lets us wait, for its
 * request or to take its reply, gives way: it ends as soon as its thread runs, which is waited for
 * where many do. False: all have requests under way. */
static bool control_enter(struct control *c, struct control_conn *conn)
{
	uint64_t deadline_ns = clock_mono_ns() + CONTROL_DROP_NS;
	bool room;

	pthread_mutex_lock(&c->lock);
	if (c->connections - c->dropped >= CONTROL_CONNECTIONS_MAX &&
	    !cds_list_empty(&c->waited_for)) {
		struct control_conn *oldest =
		    cds_list_first_entry(&c->waited_for, struct control_conn, node);

		cds_list_del_init(&oldest->node);
		oldest->dropped = true;
		c->dropped++;
		shutdown(oldest->fd, SHUT_RDWR);
	}
	while (c->dropped > 0 && c->connections >= CONTROL_THREADS_MAX &&
	       thread_cond_wait_until(&c->idle, &c->lock, deadline_ns) == 0)
		;
	room = c->connections - c->dropped < CONTROL_CONNECTIONS_MAX &&
	       c->connections < CONTROL_THREADS_MAX;
	if (room) {
		c->connections++;
		cds_list_add_tail(&conn->node, &c->waited_for);
	}
	pthread_mutex_unlock(&c->lock);
	return room;
}

/* False: there is no descriptor for it now. */
static bool control_accept(struct control *c)
{
	struct control_conn *conn;
	int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	pthread_t thread;

	if (fd < 0)
		return !io_accept_lacks(errno);
	conn = calloc(1, sizeof(*conn));
	if (!conn) {
		close(fd);
		return true;
	}
	conn->c = c;
	conn->fd = fd;
	if (!control_enter(c, conn)) {
		close(fd);
		free(conn);
	} else if (thread_start(&thread, "kv-ctl", control_conn_main, conn) == 0) {
		pthread_detach(thread);
	} else {
		control_leave(conn, false);
	}
	return true;
}

/* Bound through /proc/self/fd, since the volume's path may be longer than a socket address
 * holds. */
static int control_bind(int dirfd, int *ret_fd)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;

	if (fd < 0)
		return -errno;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s", dirfd,
		 VOLUME_CONTROL_NAME);
	unlinkat(dirfd, VOLUME_CONTROL_NAME, 0); /* of a dead daemon: we hold the volume's lock */
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    fchmodat(dirfd, VOLUME_CONTROL_NAME, 0600, 0) != 0 ||
	    listen(fd, CONTROL_CONNECTIONS_MAX) != 0)
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

static void *control_main(void *arg)
{
	struct control *c = arg;
	struct pollfd fds[2] = { { .fd = c->listen_fd, .events = POLLIN },
				 { .fd = c->stop_fd, .events = POLLIN } };
	bool pause = false;

	for (;;) {
		int timeout_ms = pause ? CONTROL_ACCEPT_MS : -1;

		if (c->listen_fd < 0 && control_bind(c->node->vol->dirfd, &c->listen_fd) != 0)
			timeout_ms = CONTROL_BIND_MS;
		fds[0].fd = pause ? -1 : c->listen_fd;
		if (poll(fds, 2, timeout_ms) < 0)
			continue;
		if (fds[1].revents)
			return NULL;
		pause = fds[0].revents && !control_accept(c);
	}
}

/* On a full disk the rest is served without it: reading and deleting work, and may make room. */
static int control_open(struct control *c)
{
	const struct volume *vol = c->node->vol;
	int err = control_bind(vol->dirfd, &c->listen_fd);

	if (err != -ENOSPC && err != -EDQUOT)
		return err;
	diag_warn("%s: no control socket: %s; kvfs status and kvfs umount find it again once "
		  "there is room, umount(8) works",
		  vol->path, strerror(-err));
	return 0;
}

int control_start(struct node *n, struct fs *fs, struct control **ret_c, char why[NODE_WHY_BYTES])
{
	struct control *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	c->node = n;
	c->fs = fs;
	c->listen_fd = c->farewell_fd = -1;
	pthread_mutex_init(&c->lock, NULL);
	thread_cond_init(&c->idle);
	CDS_INIT_LIST_HEAD(&c->waited_for);
	c->stop_fd = eventfd(0, EFD_CLOEXEC);
	c->shutdown_fd = eventfd(0, EFD_CLOEXEC);
	err = control_open(c);
	if (err) {
		snprintf(why, NODE_WHY_BYTES, "cannot open the control socket %s/%s: %s",
			 n->vol->path, VOLUME_CONTROL_NAME, strerror(-err));
		control_stop(c);
		return err;
	}
	err = thread_start(&c->thread, "kv-control", control_main, c);
	if (err) {
		snprintf(why, NODE_WHY_BYTES,
			 "cannot start a thread: %s; see ulimit -u, ulimit -v and the cgroup's "
			 "limits", strerror(-err));
		control_stop(c);
		return err;
	}
	c->started = true;
	*ret_c = c;
	return 0;
}

int control_shutdown_fd(const struct control *c)
{
	return c->shutdown_fd;
}

int control_stop(struct control *c)
{
	uint64_t one = 1;
	int farewell_fd;

	if (!c)
		return -1;
	if (c->started) {
		io_write_full(c->stop_fd, &one, sizeof(one));
		pthread_join(c->thread, NULL);
		unlinkat(c->node->vol->dirfd, VOLUME_CONTROL_NAME, 0);
		pthread_mutex_lock(&c->lock);
		/* a request is read no further; a reply that nobody takes ends after
		 * CONTROL_LAST_NS, and the checkpoint that was asked for comes before it */
		while (c->connections)
			pthread_cond_wait(&c->idle, &c->lock);
		pthread_mutex_unlock(&c->lock);
	}
	if (c->listen_fd >= 0)
		close(c->listen_fd);
	close(c->stop_fd);
	close(c->shutdown_fd);
	farewell_fd = c->farewell_fd;
	pthread_cond_destroy(&c->idle);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return farewell_fd;
}

void control_farewell(int fd, const char *error)
{
	json_t *last;

	if (fd < 0)
		return;
	if (error) {
		last = control_refuse(error, "");
		control_reply(NULL, fd, last);
		json_decref(last);
	}
	close(fd);
}
