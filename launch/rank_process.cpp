#include "launch/rank_process.h"

#include "launch/failures.h"
#include "runtime/base/log.h"

namespace weft::launch {
namespace {

// As far as is known before the ranks have met: a rank's name in errors.
std::string device_name(const parallel::Binding& binding) {
  if (!binding.options.use_gpus || !binding.place || !binding.place->gpu) return "CPU";
  return "GPU " + binding.topology.gpus[*binding.place->gpu].bus_id;
}

}  // namespace

void as_rank(const RankOptions& options, const std::function<void(RankProcess&)>& work) {
  // Both before MPI, which starts threads; the guardian is not bound.
  parallel::Guardian guardian =
      options.guardian ? parallel::Guardian::start() : parallel::Guardian();
  parallel::Binding binding = parallel::bind_early(options.bind);
  parallel::MpiSession session(nullptr, nullptr);
  start_logging(session.size() > 1 ? session.rank() : -1, options.verbose);
  try {
    guardian.join(session, device_name(binding));
    RankProcess process{session, guardian, binding};
    work(process);
  } catch (const parallel::AgreedError& error) {
    guardian.leave();
    say_and_close(session, error.what());
    if (error.status() == 0) return;  // a drain, in order
    throw AlreadySaid(error.status());
  } catch (const Error& error) {
    end_job(session, guardian, error.what(), error.status());
  } catch (const std::exception& error) {
    end_job(session, guardian, error.what(), 1);
  }
  guardian.leave();
  session.close();
}

}  // namespace weft::launch
