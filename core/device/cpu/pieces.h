// Cuts the elements of a [rows, columns] operand into tasks of about the same size, by shape alone: rows together when
// they are short, a long row in parts.
#ifndef MOE_CORE_DEVICE_CPU_PIECES_H_
#define MOE_CORE_DEVICE_CPU_PIECES_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "core/device/cpu/thread_pool.h"
#include "core/device/rows.h"

namespace moe {

// 64 KiB of float: some microseconds of work, far above what handing out a task costs.
constexpr int64_t kElementsOfPiece = 16384;

class Pieces {
 public:
  Pieces(int64_t rows, int64_t columns, int64_t elements = kElementsOfPiece)
      : rows_(rows), columns_(columns), rows_of_task_(std::max<int64_t>(1, elements / std::max<int64_t>(1, columns))),
        columns_of_task_(std::max<int64_t>(1, std::min(columns, elements))), blocks_((columns + columns_of_task_ - 1) / columns_of_task_) {}

  int64_t tasks() const { return (rows_ + rows_of_task_ - 1) / rows_of_task_ * blocks_; }
  // body(row, first column, columns) for the pieces of one task.
  template <typename Body>
  void Each(int64_t task, Body&& body) const {
    const int64_t begin = task / blocks_ * rows_of_task_, first = task % blocks_ * columns_of_task_;
    for (int64_t r = begin; r < std::min(rows_, begin + rows_of_task_); ++r) body(r, first, std::min(columns_of_task_, columns_ - first));
  }

 private:
  int64_t rows_, columns_, rows_of_task_, columns_of_task_, blocks_;
};

// The pieces of equally shaped operands of any rank; one long row where all are contiguous.
inline Pieces PiecesOf(std::initializer_list<const TensorView*> operands) {
  bool flat = true;
  for (const TensorView* v : operands) flat = flat && v->contiguous();
  const TensorView& v = **operands.begin();
  return flat ? Pieces(1, v.size()) : Pieces(NumRows(v), RowLength(v));
}

template <typename Body>
void ForPieces(ThreadPool* pool, const Pieces& pieces, Body&& body) {
  pool->ParallelFor(pieces.tasks(), [&](int64_t task) { pieces.Each(task, body); });
}

// body(first row, end row) over rows of `columns` elements, whole rows only.
template <typename Body>
void ForRowBlocks(ThreadPool* pool, int64_t rows, int64_t columns, Body&& body) {
  const int64_t block = std::max<int64_t>(1, kElementsOfPiece / std::max<int64_t>(1, columns));
  pool->ParallelFor((rows + block - 1) / block, [&](int64_t task) { body(task * block, std::min(rows, (task + 1) * block)); });
}

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_PIECES_H_
