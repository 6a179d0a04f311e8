/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that breaks the rules: at set-up, on a tcp lane, in shared memory. It may cost the lane,
 * never a byte outside the window, a read outside the ring, or a wait without end.
 */
#include "common/byteorder.h"
#include "replication/transport/transport_shm_internal.h"
#include "replication/transport/transport_tcp_format.h"
#include "tests/unit/transport_pair.h"
#include "tests/unit/unit_main.h"

#include <fcntl.h>
#include <sys/mman.h>

#define WINDOW 8192U

/* An accept in a thread, our end of its control connection in hand. */
struct victim {
	struct pair_accept a;
	pthread_t thread;
	int fd;
};

static void victim_start(struct victim *v, const struct transport_ops *ops, bool over_tcp,
			 unsigned lanes, uint64_t deadline_ns)
{
	int fds[2];

	pair_sockets(over_tcp, fds);
	v->fd = fds[1];
	v->a = (struct pair_accept){ .ops = ops,
				     .fd = fds[0],
				     .params = pair_params(lanes, WINDOW) };
	v->a.params.deadline_ns = deadline_ns;
	ck_assert_int_eq(thread_start(&v->thread, "kv-accept", pair_accept_main, &v->a), 0);
}

static int victim_end(struct victim *v)
{
	pthread_join(v->thread, NULL);
	close(v->a.fd);
	close(v->fd);
	return v->a.result;
}

static void send_all(int fd, const void *data, size_t len)
{
	ck_assert_int_eq(send(fd, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void recv_all(int fd, void *data, size_t len)
{
	ck_assert_int_eq(recv(fd, data, len, MSG_WAITALL), (ssize_t)len);
}

static const struct { const struct transport_ops *ops; bool over_tcp; } both[] = {
	{ &transport_tcp_ops, true },
	{ &transport_shm_ops, false },
};

START_TEST(set_up_ends_at_its_deadline)
{
	struct victim v;

	victim_start(&v, both[_i].ops, both[_i].over_tcp, 1, clock_mono_ns() + 50 * NSEC_PER_MSEC);
	ck_assert_int_eq(victim_end(&v), -ETIMEDOUT);
}
END_TEST

START_TEST(set_up_ends_when_the_peer_hangs_up)
{
	struct victim v;

	victim_start(&v, both[_i].ops, both[_i].over_tcp, 1, pair_deadline());
	shutdown(v.fd, SHUT_RDWR);
	ck_assert_int_eq(victim_end(&v), -ECONNRESET);
}
END_TEST

START_TEST(set_up_refuses_nonsense)
{
	uint8_t noise[64];
	struct victim v;

	memset(noise, 0xA5, sizeof(noise));
	victim_start(&v, both[_i].ops, both[_i].over_tcp, 1, pair_deadline());
	send_all(v.fd, noise, sizeof(noise));
	ck_assert_int_eq(victim_end(&v), -EPROTO);
}
END_TEST

START_TEST(set_up_refuses_the_wrong_socket)
{
	struct transport_params params = pair_params(1, WINDOW);
	struct transport_ep *ep = NULL;
	const char *why = NULL;
	int fds[2];

	pair_sockets(true, fds);
	ck_assert_int_eq(transport_shm_ops.accept(fds[0], &params, &ep, &why), -ENOTSUP);
	ck_assert_ptr_nonnull(why);
	params.lanes = TRANSPORT_LANES_MAX + 1;
	ck_assert_int_eq(transport_tcp_ops.accept(fds[0], &params, &ep, &why), -EINVAL);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* ---- tcp ---- */

static void send_offer(int fd, uint16_t lanes)
{
	struct tcp_offer o;

	put_be32(o.magic, TCP_MAGIC_OFFER);
	put_be16(o.version, TCP_FORMAT_VERSION);
	put_be16(o.lanes, lanes);
	put_be64(o.window_bytes, 4096);
	send_all(fd, &o, sizeof(o));
}

static int dial(const struct tcp_answer *a)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(get_be16(a->port)),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	return fd;
}

static int dial_lane_of(const struct tcp_answer *a, uint32_t lane, uint32_t generation,
			uint8_t spoil)
{
	struct tcp_lane_hello h;
	int fd = dial(a);

	put_be32(h.magic, TCP_MAGIC_LANE);
	put_be32(h.lane, lane);
	put_be32(h.generation, generation);
	memcpy(h.token, a->token, sizeof(h.token));
	h.token[TCP_TOKEN_BYTES - 1] ^= spoil;
	send_all(fd, &h, sizeof(h));
	return fd;
}

static int dial_lane(const struct tcp_answer *a, uint32_t lane, uint8_t spoil)
{
	return dial_lane_of(a, lane, 0, spoil);
}

/* A mirror with two lanes whose peer is this test; ret_lane are our ends. */
static struct transport_ep *tcp_victim(struct victim *v, int ret_lane[2])
{
	struct tcp_status status;
	struct tcp_answer a;

	victim_start(v, &transport_tcp_ops, true, 2, pair_deadline());
	send_offer(v->fd, 2);
	recv_all(v->fd, &a, sizeof(a));
	ret_lane[0] = dial_lane(&a, 0, 0);
	ret_lane[1] = dial_lane(&a, 1, 0);
	recv_all(v->fd, &status, sizeof(status));
	ck_assert_uint_eq(get_be32(status.err), 0);
	ck_assert_int_eq(victim_end(v), 0);
	return v->a.ep;
}

START_TEST(tcp_strangers_do_not_get_in)
{
	struct tcp_status status;
	struct tcp_answer a;
	struct victim v;
	int fd[40], n = 0;
	char c;

	victim_start(&v, &transport_tcp_ops, true, 1, pair_deadline());
	send_offer(v.fd, 1);
	recv_all(v.fd, &a, sizeof(a));
	while (n < 30) /* more than it keeps: silent ones */
		fd[n++] = dial(&a);
	fd[n++] = dial_lane(&a, 0, 1);
	ck_assert_int_eq(recv(fd[n - 1], &c, 1, 0), 0);
	fd[n++] = dial_lane(&a, 5, 0);
	fd[n++] = dial_lane_of(&a, 0, 1, 0);
	ck_assert_int_eq(recv(fd[n - 1], &c, 1, 0), 0);
	fd[n++] = dial_lane(&a, 0, 0);
	recv_all(v.fd, &status, sizeof(status));
	ck_assert_int_eq(victim_end(&v), 0);
	while (n > 0)
		close(fd[--n]);
	transport_tcp_ops.close(v.a.ep);
}
END_TEST

START_TEST(tcp_set_up_ends_when_the_primary_gives_up)
{
	struct tcp_status status;
	struct tcp_answer a;
	struct victim v;

	victim_start(&v, &transport_tcp_ops, true, 1, pair_deadline());
	send_offer(v.fd, 1);
	recv_all(v.fd, &a, sizeof(a));
	put_be32(status.magic, TCP_MAGIC_STATUS);
	put_be32(status.err, ECONNREFUSED);
	send_all(v.fd, &status, sizeof(status));
	ck_assert_int_eq(victim_end(&v), -ECONNABORTED);
}
END_TEST

struct bad_frame {
	uint32_t magic;
	uint16_t kind, lane;
	uint32_t len;
	uint64_t off;
	uint32_t seq, consumed;
};

static const struct bad_frame good_frame = { TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 0, 8, 0, 0, 0 };
static const struct bad_frame bad_frames[] = {
	{ 0xDEADBEEF, TCP_FRAME_NOTICE, 0, 8, 0, 0, 0 },
	{ TCP_MAGIC_FRAME, 9, 0, 8, 0, 0, 0 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 1, 8, 0, 0, 0 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 0, 8, WINDOW - 7, 0, 0 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 0, 8, UINT64_MAX - 3, 0, 0 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 0, WINDOW + 1, 0, 0, 0 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 0, UINT32_MAX, 0, 0, 0 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 0, UINT32_MAX, UINT64_MAX, 0, 0 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 0, 8, 0, 1, 0 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_NOTICE, 0, 8, 0, 0, 1 },
	{ TCP_MAGIC_FRAME, TCP_FRAME_CREDIT, 0, 0, 0, 0, UINT32_MAX },
	{ TCP_MAGIC_FRAME, TCP_FRAME_CREDIT, 0, 8, 0, 0, 0 },
};

static struct tcp_frame wire_frame(const struct bad_frame *b)
{
	struct tcp_frame f;

	put_be32(f.magic, b->magic);
	put_be16(f.kind, b->kind);
	put_be16(f.lane, b->lane);
	put_be32(f.len, b->len);
	put_be32(f.imm, 0);
	put_be64(f.off, b->off);
	put_be32(f.seq, b->seq);
	put_be32(f.consumed, b->consumed);
	return f;
}

static void send_frame(int fd, const struct bad_frame *b)
{
	static const uint8_t payload[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct tcp_frame f = wire_frame(b);

	send_all(fd, &f, sizeof(f));
	send_all(fd, payload, sizeof(payload));
}

START_TEST(tcp_bad_frames_cost_the_lane)
{
	struct transport_event ev;
	struct pair p = { .ops = &transport_tcp_ops };
	struct bad_frame other = good_frame;
	struct victim v;
	int lane[2];
	const uint8_t *w;
	uint64_t bytes;
	char c;

	p.mirror = tcp_victim(&v, lane);
	w = p.ops->window(p.mirror, &bytes);
	send_frame(lane[0], &bad_frames[_i]);
	ev = pair_next(&p, p.mirror);
	ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_LANE_DOWN);
	ck_assert_uint_eq(ev.lane, 0);
	ck_assert_int_eq(ev.err, -EPROTO);
	for (unsigned i = 0; i < WINDOW; i++)
		ck_assert_uint_eq(w[i], 0);
	ck_assert_int_le(recv(lane[0], &c, 1, 0), 0);
	other.lane = 1;
	send_frame(lane[1], &other);
	ck_assert_int_eq(pair_next(&p, p.mirror).kind, TRANSPORT_EVENT_NOTICE);
	ck_assert_uint_eq(w[7], 8);
	p.ops->close(p.mirror);
	close(lane[0]);
	close(lane[1]);
}
END_TEST

START_TEST(tcp_more_notices_than_credits_cost_the_lane)
{
	struct pair p = { .ops = &transport_tcp_ops };
	struct bad_frame f = good_frame;
	struct transport_event ev;
	struct victim v;
	int lane[2];
	uint32_t got = 0;

	p.mirror = tcp_victim(&v, lane);
	for (f.seq = 0; f.seq < TRANSPORT_CREDITS + 1; f.seq++)
		send_frame(lane[0], &f);
	/* Taken one at a time, the first half is reported back when it has been: an honest peer
	 * would wait for that. */
	while ((ev = pair_next(&p, p.mirror)).kind == TRANSPORT_EVENT_NOTICE)
		if (++got == TRANSPORT_CREDITS + 1)
			break;
	ck_assert_uint_ge(got, TRANSPORT_CREDITS / 2);
	p.ops->close(p.mirror);
	close(lane[0]);
	close(lane[1]);
}
END_TEST

/* A frame that comes byte by byte, with a pause in its middle, is one notice. */
START_TEST(tcp_takes_frames_in_pieces)
{
	struct pair p = { .ops = &transport_tcp_ops };
	struct transport_event ev;
	uint8_t all[3 * (32 + 8)];
	struct victim v;
	int lane[2], mem[2];

	p.mirror = tcp_victim(&v, lane);
	pair_sockets(false, mem);
	for (uint32_t i = 0; i < 3; i++) {
		struct bad_frame f = good_frame;

		f.seq = i;
		f.off = i * 100;
		send_frame(mem[0], &f);
	}
	recv_all(mem[1], all, sizeof(all));
	for (size_t i = 0; i < sizeof(all); i++) {
		bool last = i % 40 == 39;

		send_all(lane[0], &all[i], 1);
		if (last) {
			ev = pair_next(&p, p.mirror);
			ck_assert_uint_eq(ev.off, i / 40 * 100);
		} else {
			ck_assert_int_eq(p.ops->poll(p.mirror, &ev, 1, 0), 0);
		}
	}
	p.ops->close(p.mirror);
	close(lane[0]);
	close(lane[1]);
	close(mem[0]);
	close(mem[1]);
}
END_TEST

/* Lane 1 of a victim is dead, and its mirror waits for that of generation 3. */
static void tcp_relane_begin(struct pair *p, struct pair_relane *a, pthread_t *ret_thread,
			     int ret_fds[2], struct tcp_answer *ret_answer)
{
	*a = (struct pair_relane){ .ops = p->ops, .ep = p->mirror,
				   .r = { .lane = 1, .generation = 3,
					  .deadline_ns = pair_deadline() } };
	pair_sockets(true, ret_fds);
	a->fd = ret_fds[0];
	ck_assert_int_eq(thread_start(ret_thread, "kv-accept", pair_relane_main, a), 0);
	recv_all(ret_fds[1], ret_answer, sizeof(*ret_answer));
	ck_assert_uint_eq(get_be16(ret_answer->lanes), 2);
}

static int dial_at(int control_fd, const struct tcp_answer *a, uint32_t lane, uint32_t generation,
		   uint8_t spoil)
{
	struct sockaddr_in in;
	struct tcp_lane_hello h;
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(getpeername(control_fd, (struct sockaddr *)&in, &len), 0);
	in.sin_port = htons(get_be16(a->port));
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	put_be32(h.magic, TCP_MAGIC_LANE);
	put_be32(h.lane, lane);
	put_be32(h.generation, generation);
	memcpy(h.token, a->token, sizeof(h.token));
	h.token[0] ^= spoil;
	send_all(fd, &h, sizeof(h));
	return fd;
}

/* A lane made anew is that of its generation: an older one's hello, another lane's and one with
 * another token stay outside, and bytes of the old connection come to nothing. */
START_TEST(tcp_old_lanes_do_not_come_back)
{
	static const struct { uint32_t lane, generation; uint8_t spoil; } wrong[] = {
		{ 1, 2, 0 }, { 1, 0, 0 }, { 1, 4, 0 }, { 0, 3, 0 }, { 7, 3, 0 }, { 1, 3, 1 },
	};
	struct pair p = { .ops = &transport_tcp_ops };
	struct bad_frame f = good_frame;
	struct tcp_frame wire;
	struct tcp_status status;
	struct pair_relane relane;
	struct transport_event ev;
	struct tcp_answer a;
	struct victim v;
	pthread_t thread;
	int lane[2], fds[2], fd;
	char c;

	p.mirror = tcp_victim(&v, lane);
	p.ops->kill_lane(p.mirror, 1);
	ck_assert_uint_eq(pair_next_of(&p, p.mirror, TRANSPORT_EVENT_LANE_DOWN).lane, 1);
	tcp_relane_begin(&p, &relane, &thread, fds, &a);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		fd = dial_at(fds[1], &a, wrong[i].lane, wrong[i].generation, wrong[i].spoil);
		ck_assert_int_eq(recv(fd, &c, 1, 0), 0);
		close(fd);
	}
	fd = dial_at(fds[1], &a, 1, 3, 0);
	recv_all(fds[1], &status, sizeof(status));
	ck_assert_uint_eq(get_be32(status.err), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(relane.result, 0);
	f.lane = 1;
	f.off = 100;
	wire = wire_frame(&f);
	(void)send(lane[1], &wire, sizeof(wire), MSG_NOSIGNAL); /* closed, as a rule */
	send_frame(fd, &f);
	ev = pair_next(&p, p.mirror);
	ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_NOTICE);
	ck_assert_uint_eq(ev.lane, 1);
	ck_assert_uint_eq(ev.off, 100);
	ck_assert_int_eq(p.ops->poll(p.mirror, &ev, 1, 0), 0);
	p.ops->close(p.mirror);
	close(fd);
	close(fds[0]);
	close(fds[1]);
	close(lane[0]);
	close(lane[1]);
}
END_TEST

/* In shared memory the two ends must mean the same lane and generation. */
START_TEST(shm_old_lanes_do_not_come_back)
{
	static const struct shm_lane_hello wrong[] = {
		{ SHM_MAGIC_LANE, SHM_FORMAT_VERSION, 0, 2 },
		{ SHM_MAGIC_LANE, SHM_FORMAT_VERSION, 1, 3 },
		{ SHM_MAGIC_LANE, SHM_FORMAT_VERSION + 1, 0, 3 },
		{ SHM_MAGIC, SHM_FORMAT_VERSION, 0, 3 },
	};
	struct transport_relane r = { .lane = 0, .generation = 3, .deadline_ns = pair_deadline() };
	const char *why;
	struct pair p;
	int fds[2];

	pair_open(&p, &transport_shm_ops, false, 2, WINDOW);
	p.ops->kill_lane(p.primary, 0);
	pair_next_of(&p, p.mirror, TRANSPORT_EVENT_LANE_DOWN);
	pair_next_of(&p, p.primary, TRANSPORT_EVENT_LANE_DOWN);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		pair_sockets(false, fds);
		send_all(fds[1], &wrong[i], sizeof(wrong[i]));
		ck_assert_int_eq(p.ops->lane_accept(p.mirror, fds[0], &r, &why), -EPROTO);
		ck_assert_int_eq(pair_post(&p, p.mirror, 0, "x", 1, 0, 1), -ENOTCONN);
		close(fds[0]);
		close(fds[1]);
	}
	pair_relane(&p, false, 0, 3);
	ck_assert_int_eq(pair_post(&p, p.primary, 0, "x", 1, 0, 1), 1);
	ck_assert_uint_eq(pair_next_of(&p, p.mirror, TRANSPORT_EVENT_NOTICE).lane, 0);
	pair_close(&p);
}
END_TEST

/* ---- shm: one process, so the victim's inbox is at hand through the peer's private state ---- */

static void open_shm(struct pair *p)
{
	pair_open(p, &transport_shm_ops, false, 2, WINDOW);
}

static void expect_lane_lost(struct pair *p, struct transport_ep *ep)
{
	struct transport_event ev = pair_next_of(p, ep, TRANSPORT_EVENT_LANE_DOWN);

	ck_assert_uint_eq(ev.lane, 0);
	ck_assert_int_eq(ev.err, -EPROTO);
	ck_assert_int_eq(pair_post(p, p->primary, 1, "x", 1, 0, 5), 1);
	ck_assert_uint_eq(pair_next_of(p, p->mirror, TRANSPORT_EVENT_NOTICE).lane, 1);
	pair_close(p);
}

START_TEST(shm_bad_index_costs_the_lane)
{
	static const uint32_t heads[] = { TRANSPORT_CREDITS + 1, UINT32_MAX, 0x80000000U };
	struct shm_ep *evil;
	struct pair p;

	open_shm(&p);
	evil = (struct shm_ep *)p.primary;
	atomic_store(&evil->lane[0].out->head, heads[_i]);
	expect_lane_lost(&p, p.mirror);
}
END_TEST

START_TEST(shm_bad_entry_costs_the_lane)
{
	static const uint64_t entries[][2] = {
		{ WINDOW, 1ULL << 32 }, { UINT64_MAX, 2ULL << 32 }, { 0, (WINDOW + 1ULL) << 32 },
		{ 1, UINT64_MAX }, { UINT64_MAX, UINT64_MAX },
	};
	struct shm_ring *out;
	struct pair p;

	open_shm(&p);
	out = ((struct shm_ep *)p.primary)->lane[0].out;
	atomic_store(&out->entry[0].off, entries[_i][0]);
	atomic_store(&out->entry[0].len_imm, entries[_i][1]);
	atomic_store(&out->head, 1);
	expect_lane_lost(&p, p.mirror);
}
END_TEST

START_TEST(shm_bad_tail_costs_the_lane)
{
	struct shm_ep *evil;
	struct transport_event ev;
	struct pair p;
	int r;

	/* The mirror claims to have taken what was never sent. */
	open_shm(&p);
	evil = (struct shm_ep *)p.mirror;
	atomic_store(&evil->lane[0].in->tail, 5000);
	while ((r = pair_post(&p, p.primary, 0, "x", 1, 0, 1)) == 1)
		;
	ck_assert_int_eq(r, -ENOTCONN);
	ev = pair_next(&p, p.primary);
	ck_assert_int_eq(ev.kind, TRANSPORT_EVENT_LANE_DOWN);
	pair_close(&p);
}
END_TEST

enum { MEM_SHORT, MEM_UNSEALED, MEM_PIPE, MEM_READ_ONLY, MEM_FILE, MEM_KINDS };

static int make_memory(int kind, uint64_t bytes)
{
	int fds[2], fd;

	if (kind == MEM_PIPE) {
		ck_assert_int_eq(pipe(fds), 0);
		close(fds[1]);
		return fds[0];
	}
	if (kind == MEM_FILE)
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	fd = memfd_create("evil", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(fd, (off_t)(kind == MEM_SHORT ? bytes - 4096 : bytes)), 0);
	if (kind != MEM_UNSEALED)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	if (kind == MEM_READ_ONLY)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	return fd;
}

START_TEST(shm_refuses_memory_that_could_vanish)
{
	struct shm_hello h = { .magic = SHM_MAGIC, .version = SHM_FORMAT_VERSION, .lanes = 1,
			       .window_bytes = WINDOW };
	struct shm_hello reply;
	struct victim v;
	int fds[2], fd;

	victim_start(&v, &transport_shm_ops, false, 1, pair_deadline());
	ck_assert_int_eq(shm_hello_send(v.fd, &h, NULL, 0, pair_deadline()), 0);
	ck_assert_int_eq(shm_hello_recv(v.fd, &reply, fds, 2, pair_deadline()), 0);
	fd = make_memory(_i, shm_inbox_bytes(1, WINDOW));
	ck_assert_int_eq(shm_hello_send(v.fd, &h, &fd, 1, pair_deadline()), 0);
	ck_assert_int_eq(victim_end(&v), -EPROTO);
	close(fd);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

START_TEST(shm_refuses_a_wrong_number_of_descriptors)
{
	struct shm_hello h = { .magic = SHM_MAGIC, .version = SHM_FORMAT_VERSION, .lanes = 1,
			       .window_bytes = WINDOW };
	struct victim v;
	int fds[4] = { 0, 0, 0, 0 };

	victim_start(&v, &transport_shm_ops, false, 1, pair_deadline());
	ck_assert_int_eq(shm_hello_send(v.fd, &h, fds, 4, pair_deadline()), 0);
	ck_assert_int_eq(victim_end(&v), -EPROTO);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport_hostile");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, set_up_ends_at_its_deadline, 0, 2);
	tcase_add_loop_test(t, set_up_ends_when_the_peer_hangs_up, 0, 2);
	tcase_add_loop_test(t, set_up_refuses_nonsense, 0, 2);
	tcase_add_test(t, set_up_refuses_the_wrong_socket);
	tcase_add_test(t, tcp_strangers_do_not_get_in);
	tcase_add_test(t, tcp_set_up_ends_when_the_primary_gives_up);
	tcase_add_loop_test(t, tcp_bad_frames_cost_the_lane, 0,
			    sizeof(bad_frames) / sizeof(bad_frames[0]));
	tcase_add_test(t, tcp_more_notices_than_credits_cost_the_lane);
	tcase_add_test(t, tcp_takes_frames_in_pieces);
	tcase_add_test(t, tcp_old_lanes_do_not_come_back);
	tcase_add_test(t, shm_old_lanes_do_not_come_back);
	tcase_add_loop_test(t, shm_bad_index_costs_the_lane, 0, 3);
	tcase_add_loop_test(t, shm_bad_entry_costs_the_lane, 0, 5);
	tcase_add_test(t, shm_bad_tail_costs_the_lane);
	tcase_add_loop_test(t, shm_refuses_memory_that_could_vanish, 0, MEM_KINDS);
	tcase_add_test(t, shm_refuses_a_wrong_number_of_descriptors);
	suite_add_tcase(s, t);
	return unit_run(s);
}
