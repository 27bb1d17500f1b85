// The kernels, in the C++ that needs no library. clang compiles them to PTX at build time, in its CUDA dialect but
// without anything of CUDA; the tests compile them for the host, where threads run one after the other.
#include "transport/device/cuda_kernels.h"

namespace {

using namespace ciuic::device::kernels;

/// [k][i]: what byte i, and k zeros behind it, make of a CRC of 0.
using Tables = U32[8][256];

#ifdef __NVPTX__
#define CIUIC_ON_DEVICE __attribute__((device))
__attribute__((shared)) Tables tables;
__attribute__((device)) U32 my_thread() { return __nvvm_read_ptx_sreg_tid_x(); }
__attribute__((device)) U32 my_block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
#else
#define CIUIC_ON_DEVICE
Tables tables;
#endif

CIUIC_ON_DEVICE void fill(U32 i) {
  U32 crc = i;
  for (int k = 0; k < 8; ++k) {
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    tables[k][i] = crc;
  }
}

CIUIC_ON_DEVICE U32 behind_byte(U32 crc, U8 byte) { return (crc >> 8) ^ tables[0][(crc ^ byte) & 255]; }

CIUIC_ON_DEVICE U32 behind_eight(U32 crc, U64 bytes) {
  const U64 x = bytes ^ crc;
  U32 after = 0;
  for (int k = 0; k < 8; ++k) after ^= tables[7 - k][(x >> (8 * k)) & 255];
  return after;
}

CIUIC_ON_DEVICE U32 crc32c(const U8* at, U32 bytes) {
  struct Sixteen {
    U64 low, high;
  };
  U32 crc = ~0U;
  for (; bytes != 0 && (reinterpret_cast<U64>(at) & 15) != 0; --bytes) crc = behind_byte(crc, *at++);
  for (; bytes >= 16; bytes -= 16, at += 16) {
    Sixteen words;  // one load
    __builtin_memcpy(&words, __builtin_assume_aligned(at, 16), 16);
    crc = behind_eight(behind_eight(crc, words.low), words.high);
  }
  for (; bytes != 0; --bytes) crc = behind_byte(crc, *at++);
  return ~crc;
}

}  // namespace

CIUIC_KERNEL void ciuic_heads(const U8* span, U64 bytes, U64 from, U64 room, Head* into, Walk* end) {
  U64 next = from, count = 0;
  while (count < room && next <= bytes && bytes - next >= header_bytes) {
    const U8* const batch = span + next;
    Head head{static_cast<U32>(next), {}};
#pragma GCC unroll 61
    for (U32 i = 0; i < header_bytes; ++i) head.words[i / 4] |= static_cast<U32>(batch[i]) << (8 * (i % 4));
    into[count++] = head;
    const int length = static_cast<int>(__builtin_bswap32(head.words[2]));
    if (length < static_cast<int>(header_bytes - overhead_bytes)) {
      next = ~0ULL;
      break;
    }
    next += static_cast<U64>(length) + overhead_bytes;
  }
  end->next = next;
  end->count = count;
}

#ifdef __NVPTX__

CIUIC_KERNEL void ciuic_checksums(const U8* span, const Piece* pieces, U64 count, U32* into) {
  fill(my_thread());
  __syncthreads();
  const U64 mine = static_cast<U64>(my_block()) * threads + my_thread();
  if (mine < count) into[mine] = crc32c(span + pieces[mine].at, pieces[mine].bytes);
}

#else

CIUIC_KERNEL void ciuic_checksums(const U8* span, const Piece* pieces, U64 count, U32* into) {
  for (U32 i = 0; i < 256; ++i) fill(i);
  for (U64 one = 0; one < count; ++one) into[one] = crc32c(span + pieces[one].at, pieces[one].bytes);
}

#endif
