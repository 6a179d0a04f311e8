/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_MEMORY_ORDER_H
#define KVFS_REPLICATION_MEMORY_ORDER_H
/*
 * Memory order between two ends of a transport, in one place; each helper is named for its one use.
 *
 * C11 atomics, not fences: ThreadSanitizer follows them, and both targets have the cheap
 * instruction. x86 (TSO) keeps loads with loads and stores with stores, so release and acquire cost
 * nothing there, but a store may pass a later load of another word: only a locked instruction stops
 * that (xchg, what a seq_cst store compiles to). ARM reorders anything: stlr and ldar order payload
 * and notice, and, being RCsc, also a store with a later load.
 *
 * A device beside the processor (verbs) is not part of C's memory model; what orders its accesses
 * lies in the provider's library. ibv_post_send ends in a barrier towards the device before the
 * doorbell (ARM: dmb oshst, or dsb for mapped doorbells; x86: stores stay in order), so what was
 * written to stage or slab before it is what the device reads. ibv_poll_cq has one from the device
 * (ARM: dmb oshld; x86: lfence) between the completion's owner bit and the rest: what
 * is read from the window after it is what the device wrote before. completion_seen names that
 * place; it keeps the compiler from moving reads of the window above it.
 */
#include <stdatomic.h>
#include <stdint.h>

/* Payload visible before notice, the writer: all bytes written before are seen by who sees the
 * new value. seq_cst, because the writer next asks whether the reader sleeps (see
 * sleep_announce): the question must not be answered before the notice is out. x86: xchg; ARM:
 * stlr. */
static inline void notice_publish(_Atomic uint32_t *head, uint32_t value)
{
	atomic_store_explicit(head, value, memory_order_seq_cst);
}

/* Payload visible before notice, the reader: bytes read after this are those written before the
 * publish. x86: mov, loads stay in order; ARM: ldar, or the payload could be fetched before the
 * notice. */
static inline uint32_t notice_observe(_Atomic uint32_t *head)
{
	return atomic_load_explicit(head, memory_order_seq_cst);
}

/* Notice read before its slot is given back: the writer that sees the new count may overwrite the
 * slot. seq_cst as the reader next asks whether the writer waits for credits. x86: xchg; ARM:
 * stlr. */
static inline void credit_return(_Atomic uint32_t *tail, uint32_t value)
{
	atomic_store_explicit(tail, value, memory_order_seq_cst);
}

/* The writer's side of credit_return: what it writes into the slot stays after this. ARM: ldar. */
static inline uint32_t credit_observe(_Atomic uint32_t *tail)
{
	return atomic_load_explicit(tail, memory_order_seq_cst);
}

/*
 * Sleep and wake without a lost wake-up (Dekker): the sleeper raises its flag, then looks once
 * more for work; the waker makes the work visible, then looks at the flag. In the single order
 * of seq_cst accesses one of them sees the other's store. With less, both could read the old
 * value on x86 too (store buffer).
 */
static inline void sleep_announce(_Atomic uint32_t *flag, uint32_t value)
{
	atomic_store_explicit(flag, value, memory_order_seq_cst);
}

static inline uint32_t sleep_check(_Atomic uint32_t *flag)
{
	return atomic_load_explicit(flag, memory_order_seq_cst);
}

/* Takes the flag down; the old value tells the one who has to act. */
static inline uint32_t sleep_take(_Atomic uint32_t *flag)
{
	return atomic_exchange_explicit(flag, 0, memory_order_seq_cst);
}

/* After ibv_poll_cq returned a completion, before anything that the device wrote is read. The
 * processor's barrier is the provider's (see above). */
static inline void completion_seen(void)
{
	atomic_signal_fence(memory_order_acquire);
}

/* A word that says only itself: statistics, hints, values checked again later. */
static inline uint32_t hint_read(_Atomic uint32_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void hint_write(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Between two looks of a spin: leaves the core's resources to its sibling. */
static inline void spin_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
