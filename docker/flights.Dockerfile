# An application's own image: its files on top of eosframework's.
#
#   docker build --file docker/flights.Dockerfile --tag flights:1 examples/flights
ARG EOSFRAMEWORK_IMAGE=eosframework:0.1.0
FROM ${EOSFRAMEWORK_IMAGE}
COPY *.py *.yaml /app/
CMD ["run-worker", "delays.yaml"]
