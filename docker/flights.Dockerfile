# An application's own image: its files on top of eosframework's.
#
#   docker build --file docker/flights.Dockerfile --tag flights examples/flights
ARG EOSFRAMEWORK_IMAGE=eosframework:latest
FROM ${EOSFRAMEWORK_IMAGE}
COPY *.py *.yaml /app/
CMD ["run-worker", "delays.yaml"]
