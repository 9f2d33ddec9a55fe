"""The activity that sends an engine its one short request."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.engine_pages import EnginePages
from activities.engine_requests import EngineRequests
from activities.pulse import pulse
from activities.readings import Policies
from fleet.config import EngineSource
from fleet.contracts.engine import AskRequest
from fleet.contracts.host import HostErrorType
from fleet.readings import Reading


class AskActivities:
    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._pages = EnginePages()
        self._requests = EngineRequests(self._pages)

    @activity.defn
    async def ask_engine(self, request: AskRequest) -> Reading:
        """Ask once, if it is to be asked at all. Never run it twice for one question.

        Raises:
            ApplicationError: type ``ServerRemoved``; it is not in the fleet, or no engine there.
        """
        async with pulse():
            spec = (await self._policies.present(request.server)).spec
            if spec is None or not isinstance(spec.source, EngineSource):
                raise ApplicationError(
                    f"{request.server} is no engine of the fleet",
                    type=HostErrorType.REMOVED,
                    non_retryable=True,
                )
            return await self._requests.ask(spec.name, spec.source, request)
