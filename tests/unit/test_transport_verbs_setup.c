/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set-up of verbs between two kvfs whose formats differ: both ends say which versions they are.
 * What is decoded is tested everywhere, both sides of the exchange where there is an RDMA device
 * (in the virtual-machine rig: tests/vm/verbs_contract.sh).
 */
#include "common/byteorder.h"
#include "replication/transport/transport_verbs_internal.h"
#include "tests/unit/transport_pair.h"
#include "tests/unit/unit_main.h"

#define OTHER (VERBS_FORMAT_VERSION + 1)

static struct verbs_offer offer_of(unsigned version)
{
	struct verbs_offer o;

	put_be32(o.magic, VERBS_MAGIC_OFFER);
	put_be16(o.version, (uint16_t)version);
	put_be16(o.lanes, 2);
	put_be64(o.window_bytes, 64 << 10);
	return o;
}

static struct verbs_status status_of(unsigned version, int err)
{
	struct verbs_status s;

	put_be32(s.magic, VERBS_MAGIC_STATUS);
	put_be16(s.version, (uint16_t)version);
	put_be16(s.err, (uint16_t)-err);
	return s;
}

START_TEST(tells_another_version_from_nonsense)
{
	struct verbs_offer o = offer_of(VERBS_FORMAT_VERSION);
	struct verbs_answer a = { 0 };
	unsigned lanes;
	uint64_t bytes;

	ck_assert_int_eq(verbs_offer_decode(&o, &lanes, &bytes), 0);
	o = offer_of(OTHER);
	ck_assert_int_eq(verbs_offer_decode(&o, &lanes, &bytes), -EPROTONOSUPPORT);
	o.magic[0] ^= 1;
	ck_assert_int_eq(verbs_offer_decode(&o, &lanes, &bytes), -EPROTO);
	put_be32(a.magic, VERBS_MAGIC_ANSWER);
	put_be16(a.version, OTHER);
	ck_assert_int_eq(verbs_answer_check(&a, 4), -EPROTONOSUPPORT);
	put_be16(a.version, VERBS_FORMAT_VERSION);
	ck_assert_int_eq(verbs_answer_check(&a, 4), -EPROTO);
}
END_TEST

START_TEST(understands_each_status)
{
	struct verbs_status s = status_of(VERBS_FORMAT_VERSION, 0);
	unsigned version = 99;

	ck_assert_int_eq(verbs_status_decode(&s, &version), 0);
	s = status_of(VERBS_FORMAT_VERSION, -EPROTO);
	ck_assert_int_eq(verbs_status_decode(&s, &version), -ECONNABORTED);
	s = status_of(0, -ENOMEM); /* of a mute one */
	ck_assert_int_eq(verbs_status_decode(&s, &version), -ECONNABORTED);
	ck_assert_uint_eq(version, 99);
	s = status_of(0, -EPROTO);
	ck_assert_int_eq(verbs_status_decode(&s, &version), -EPROTONOSUPPORT);
	ck_assert_uint_eq(version, 0);
	s = status_of(OTHER, -EPROTONOSUPPORT);
	ck_assert_int_eq(verbs_status_decode(&s, &version), -EPROTONOSUPPORT);
	ck_assert_uint_eq(version, OTHER);
	s.magic[0] ^= 1;
	ck_assert_int_eq(verbs_status_decode(&s, &version), -EPROTO);
}
END_TEST

static void says_both(const char *why, const char *peer, unsigned version)
{
	char theirs[64], ours[64];

	snprintf(theirs, sizeof(theirs), "%s's kvfs has version %u", peer, version);
	snprintf(ours, sizeof(ours), "this one version %u", VERBS_FORMAT_VERSION);
	ck_assert_msg(strstr(why, theirs) && strstr(why, ours), "%s", why);
	ck_assert_ptr_nonnull(strstr(why, "same kvfs"));
	ck_assert_ptr_null(strchr(why, '\n'));
}

/* A lane's hello and acceptance tell what their sender's port takes; 0 where it does not. */
START_TEST(each_end_tells_its_mtu)
{
	static const struct { uint32_t bytes; int r; } cases[] = {
		{ 0, 0 }, { 256, 0 }, { 4096, 0 }, { 128, -EPROTO }, { 1500, -EPROTO },
		{ 8192, -EPROTO },
	};
	struct verbs_lane_hello h = { 0 }, hello;
	struct verbs_lane_accept a = { 0 }, acceptance;

	put_be32(h.magic, VERBS_MAGIC_LANE);
	put_be32(a.magic, VERBS_MAGIC_LANE);
	put_be16(h.version, VERBS_FORMAT_VERSION);
	put_be16(a.version, VERBS_FORMAT_VERSION);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put_be32(h.target.mtu_bytes, cases[i].bytes);
		put_be32(a.target.mtu_bytes, cases[i].bytes);
		ck_assert_int_eq(verbs_hello_decode(&h, sizeof(h), &hello), cases[i].r);
		ck_assert_int_eq(verbs_accept_decode(&a, sizeof(a), 0, &acceptance), cases[i].r);
	}
}
END_TEST

START_TEST(mtus_that_differ_are_told_with_the_remedy)
{
	struct transport_mtu m = { .path = 1024, .here = 1024, .peer = 1024 };
	char text[TRANSPORT_MTU_NOTE_BYTES];

	transport_mtu_note(&m, text, sizeof(text));
	ck_assert_str_eq(text, "");
	ck_assert(transport_mtu_known(&m));
	m.peer = 4096;
	transport_mtu_note(&m, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "1024 bytes here and 4096 at the other end"));
	ck_assert_ptr_nonnull(strstr(text, "ip link set DEV mtu N"));
	ck_assert_ptr_nonnull(strstr(text, "switch")); /* it was not cut off */
	m.peer = 0; /* InfiniBand, tcp, or one that does not tell yet */
	ck_assert(!transport_mtu_known(&m));
	transport_mtu_note(&m, text, sizeof(text));
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(says_both_versions)
{
	says_both(verbs_formats_why("the mirror", OTHER), "the mirror", OTHER);
	says_both(verbs_formats_why("the mirror", 0), "the mirror", VERBS_FORMAT_MUTE);
	ck_assert_ptr_nonnull(strstr(verbs_formats_why("the mirror", 0), "or older"));
}
END_TEST

static bool without_a_device(void)
{
	char text[VERBS_TEXT_BYTES];

	return verbs_available(NULL, text, sizeof(text)) != 0;
}

START_TEST(a_mirror_refuses_another_version_and_tells_its_own)
{
	struct transport_params params = pair_params(2, 64 << 10);
	struct verbs_offer o = offer_of(OTHER);
	struct transport_ep *ep = NULL;
	struct verbs_status s;
	const char *why = "";
	int fds[2];

	if (without_a_device())
		return;
	pair_sockets(true, fds);
	ck_assert_int_eq(setup_send(fds[1], &o, sizeof(o), pair_deadline()), 0);
	ck_assert_int_eq(transport_verbs_ops.accept(fds[0], &params, &ep, &why), -EPROTONOSUPPORT);
	says_both(why, "the primary", OTHER);
	ck_assert_ptr_null(ep);
	ck_assert_int_eq(setup_recv(fds[1], &s, sizeof(s), pair_deadline()), 0);
	ck_assert_uint_eq(get_be16(s.version), VERBS_FORMAT_VERSION);
	ck_assert_uint_eq(get_be16(s.err), EPROTONOSUPPORT);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* 0: of a later version, 1: a mute one. */
START_TEST(a_primary_hears_of_the_mirrors_version)
{
	struct verbs_status s = _i ? status_of(0, -EPROTO) : status_of(OTHER, -EPROTONOSUPPORT);
	struct transport_params params = pair_params(2, 64 << 10);
	struct transport_ep *ep = NULL;
	const char *why = "";
	int fds[2];

	if (without_a_device())
		return;
	pair_sockets(true, fds);
	ck_assert_int_eq(setup_send(fds[0], &s, sizeof(s), pair_deadline()), 0);
	ck_assert_int_eq(transport_verbs_ops.connect(fds[1], NULL, &params, &ep, &why),
			 -EPROTONOSUPPORT);
	says_both(why, "the mirror", _i ? VERBS_FORMAT_MUTE : OTHER);
	ck_assert_ptr_null(ep);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport_verbs_setup");
	TCase *t = tcase_create("formats");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, tells_another_version_from_nonsense);
	tcase_add_test(t, understands_each_status);
	tcase_add_test(t, each_end_tells_its_mtu);
	tcase_add_test(t, mtus_that_differ_are_told_with_the_remedy);
	tcase_add_test(t, says_both_versions);
	tcase_add_test(t, a_mirror_refuses_another_version_and_tells_its_own);
	tcase_add_loop_test(t, a_primary_hears_of_the_mirrors_version, 0, 2);
	suite_add_tcase(s, t);
	return unit_run(s);
}
