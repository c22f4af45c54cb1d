// Set-up values over MPI.
#include "parallel/gather.h"

namespace weft::parallel {

std::string broadcast_text(const MpiSession& session, std::string text) {
  constexpr size_t kMostBytes = size_t{1} << 30;
  const size_t bytes = gather(session, text.size()).front();
  WEFT_EXPECT(bytes <= kMostBytes);
  text.resize(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(text.data(), static_cast<int>(bytes), MPI_BYTE, 0, session.world(), &request),
        "MPI_Ibcast");
  wait_gently(&request);
  return text;
}

void gather_bytes(const MpiSession& session, const void* mine, void* all, size_t bytes) {
  const int n = static_cast<int>(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, session.world(), &request),
        "MPI_Iallgather");
  wait_gently(&request);
}

}  // namespace weft::parallel
