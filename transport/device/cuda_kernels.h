#pragma once

/// What runs on the GPU, and what it and the host hand each other. Includes nothing: it is compiled for the GPU too,
/// where there are no headers. Next: cuda_kernels.cpp.
namespace ciuic::device::kernels {

using U8 = unsigned char;
using U32 = unsigned int;
using U64 = unsigned long long;
static_assert(sizeof(U32) == 4 && sizeof(U64) == 8);

inline constexpr U32 header_bytes = 61, overhead_bytes = 12;  // of a record batch: transport/kafka/record_batch.h
/// Of a block, whose tables all of them fill.
inline constexpr U32 threads = 256;
/// Each thread checks one piece. A warp's pieces are 32 KiB, which its SM's cache holds while it goes through them.
inline constexpr U32 piece_bytes = 1024;

/// A batch's header: `at`, then its bytes in the order that they have in memory.
struct Head {
  U32 at;
  U32 words[16];
};
/// Where a walk ended.
struct Walk {
  U64 next;  // the batch to go on with; beyond the span where there is none
  U64 count;
};
struct Piece {
  U32 at;
  U32 bytes;
};

}  // namespace ciuic::device::kernels

#ifdef __NVPTX__
#define CIUIC_KERNEL extern "C" __attribute__((global))
#else
#define CIUIC_KERNEL extern "C"
#endif

/// By one thread: the heads of at most `room` batches from `from` on (device.h, heads).
CIUIC_KERNEL void ciuic_heads(const ciuic::device::kernels::U8* span, ciuic::device::kernels::U64 bytes,
                              ciuic::device::kernels::U64 from, ciuic::device::kernels::U64 room,
                              ciuic::device::kernels::Head* into, ciuic::device::kernels::Walk* end);
/// By `threads` a block and a thread a piece: CRC32C of each.
CIUIC_KERNEL void ciuic_checksums(const ciuic::device::kernels::U8* span, const ciuic::device::kernels::Piece* pieces,
                                  ciuic::device::kernels::U64 count, ciuic::device::kernels::U32* into);
