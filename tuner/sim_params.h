/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_SIM_PARAMS_H
#define KVFS_TUNER_SIM_PARAMS_H
/*
 * What the simulated NIC is made of, and where each figure comes from. A 100 Gb/s card of about
 * 2018 on PCIe 3.0 x16. Figures are rounded; [own] is measured on kvfs (HACKING.md) or, where it
 * says so, an assumption without a source. None was chosen by looking at what a policy makes of it.
 * [eRPC]   Kalia, Kaminsky, Andersen: Datacenter RPCs can be general and fast. NSDI 2019.
 * [Guide]  Kalia, Kaminsky, Andersen: Design guidelines for high performance RDMA systems. ATC
 *          2016.
 * [PCIe]   Neugebauer et al.: Understanding PCIe performance for end host networking. SIGCOMM 2018.
 * [FaRM]   Dragojevic et al.: FaRM: fast remote memory. NSDI 2014.
 * [Reg]    Frey, Alonso: Minimizing the hidden cost of RDMA. ICDCS 2009.
 * [Poll]   Yang, Minturn, Hady: When poll is better than interrupt. FAST 2012.
 * [Just]   Zhang et al.: Justitia: software multi-tenancy in hardware kernel-bypass networks.
 *          NSDI 2022.
 * [MVA]    Schweitzer's approximation of mean value analysis; Seidmann et al. 1987 for several
 *          servers.
 * [Che]    Che, Tung, Wang: Hierarchical web caching systems. IEEE JSAC 2002: LRU by
 *          characteristic time.
 */

/* The card's memory for connection state and translations; state of a connection [eRPC]. */
#define SIM_NIC_CACHE_BYTES (2.0 * 1024 * 1024)
#define SIM_QP_BYTES 375.0
/* Translation entries: 8 bytes a 4 KiB page, fetched a 64-byte line at a time [FaRM]. */
#define SIM_MTT_LINE_BYTES 64.0
#define SIM_MTT_LINE_PAGES 8.0

/* A read across PCIe by the card [PCIe]; a miss stalls one processing unit for about that. */
#define SIM_PCIE_READ_NS 600.0
#define SIM_PCIE_BYTES_PER_S 15.75e9
#define SIM_PCIE_OVERHEAD (1.0 + 24.0 / 256.0)
/* A doorbell: one write-combined 64-byte store to the card [Guide]. */
#define SIM_DOORBELL_NS 150.0
/* Building a work request, on the CPU [Guide]. */
#define SIM_WQE_CPU_NS 40.0
/* A card has some processing units, each serves one QP at a time; about 10 M requests/s a unit
 * [Guide]. */
#define SIM_UNITS 8.0
#define SIM_WQE_NIC_NS 100.0
#define SIM_PACKET_NIC_NS 100.0
#define SIM_MTU 4096.0
#define SIM_PACKET_HEADERS 58.0
#define SIM_LINK_BYTES_PER_S 12.5e9
/* There and back through one switch [eRPC]. Cards serve busy QPs in turn, so that a tenant's
 * share of link and units is its share of the busy QPs [Just]. */
#define SIM_WIRE_RTT_NS 2000.0

/* An interrupt, the wake-up of a sleeper and its scheduling: latency and CPU [Poll]; the card's
 * moderation of completion interrupts waits at most this long for more (the driver's usual
 * order). */
#define SIM_WAKE_NS 5000.0
#define SIM_WAKE_CPU_NS 2500.0
#define SIM_MODERATION_NS 8000.0
#define SIM_CQE_CPU_NS 60.0

/* Registering memory: a fixed part and one a 4 KiB page, pinning included [Reg]. Regions of 64
 * MiB [own]. */
#define SIM_REG_FIXED_NS 20e3
#define SIM_REG_PAGE_NS 250.0
#define SIM_REGION_BYTES (64.0 * 1024 * 1024)

/* libpmemlog on memory: 0.5 us for 64 bytes, 1.4 us for 16 KiB [own], and copying beyond. */
#define SIM_APPEND_NS 450.0
#define SIM_APPEND_BYTE_NS 0.058
/* A record in the commit queue, at the leader and at the mirror: queueing, sealing, checking
 * [own, assumed]. */
#define SIM_RECORD_NS 150.0
/* A client's request: copy, checksum, apply, reply, without FUSE [own, assumed]. */
#define SIM_OP_CPU_NS 2000.0
#define SIM_OP_BYTE_NS 0.12
/* Putting a batch that overtook others back into order, per waiting lane [own, assumed]. */
#define SIM_REORDER_NS 80.0

/* Window-to-window noise of a throughput: white, slow, and a rare window that something else
 * spoils. These are of the order seen in repeated runs on shared machines [own, assumed]. */
#define SIM_NOISE 0.04
#define SIM_NOISE_SLOW 0.02
#define SIM_NOISE_SLOW_KEEP 0.9
#define SIM_HICCUP_SHARE 0.01
#define SIM_HICCUP_LOW 0.5
#define SIM_HICCUP_HIGH 0.9

#endif
